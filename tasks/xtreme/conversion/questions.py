"""Files of SQuAD's form: answers checked against their contexts, and blanked for a test file."""

from collections.abc import Callable, Iterator
from typing import Any

from rembert.errors import UsageError
from tasks.xtreme.conversion.converted import Converted, json_text


def each_question(content: Any, where: str) -> Iterator[tuple[str, dict]]:
  """Contexts and questions, in their order.

  Raises:
    UsageError: the file is of another form, or an answer does not stand where it says.
  """
  try:
    for article in content['data']:
      for paragraph in article['paragraphs']:
        for question in paragraph['qas']:
          _check_answers(paragraph['context'], question, where)
          yield paragraph['context'], question
  except (KeyError, TypeError) as error:
    raise UsageError(
      f'not a file of SQuAD’s form: {type(error).__name__} {error}', where=where, fix='fetch the file again'
    ) from None


def _check_answers(context: str, question: dict, where: str) -> None:
  for answer in question['answers']:
    begin = answer['answer_start']
    if context[begin : begin + len(answer['text'])] != answer['text']:
      raise UsageError(
        f'question {question["id"]}: {answer["text"]!r} does not stand at character {begin} of its context',
        where=where,
        fix='fetch the file again',
      )


def one_article_each(
  content: Any, where: str, question_as: Callable[[dict], dict] = lambda question: question
) -> dict[str, Any]:
  """A file with an article for each question, as XTREME's preprocessing writes it."""
  articles = [
    {'paragraphs': [{'context': context, 'qas': [question_as(question)]}]}
    for context, question in each_question(content, where)
  ]
  return {'data': articles, 'version': content.get('version', '1.1')}


def blanked(question: dict) -> dict:
  """A question without its answers."""
  return {'answers': [{'answer_start': 0, 'text': ''}], 'question': question['question'], 'id': question['id']}


def blanked_test_files(content: Any, where: str, path: str, task: str, language: str) -> Iterator[Converted]:
  """A test file without answers, and the file itself as its labels."""
  yield Converted(path, json_text(one_article_each(content, where, blanked)))
  yield Converted(f'labels/{task}/test-{language}.json', json_text(content))
