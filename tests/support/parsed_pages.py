"""Pages as a parser reads them, and text that wants to be more than text."""

import html.parser

HOSTILE = (
  '<script>alert(1)</script>',
  '</style><script>x()</script>',
  '"><img src=x onerror=y>',
  "' onload='z",
  '&lt;b&gt;',
)


class Reader(html.parser.HTMLParser):
  """Tags, attributes and text of a document."""

  def __init__(self, text):
    super().__init__()
    self.tags, self.attributes, self.text = [], [], ''
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    self.tags.append(tag)
    self.attributes += attrs

  def handle_data(self, data):
    self.text += data
