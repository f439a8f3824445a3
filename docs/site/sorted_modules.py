"""For griffe, which reads the code: modules of a package by name, where the file system gives them in any order."""

import griffe


class SortedModules(griffe.Extension):
  """Members of packages are their modules: their order is that of the pages."""

  def on_package(self, *, pkg: griffe.Module, **others) -> None:
    """Called with a whole package, before anything is rendered."""
    del others
    _sort(pkg)


def _sort(module: griffe.Module) -> None:
  modules = {
    name: member for name, member in sorted(module.members.items()) if not member.is_alias and member.is_module
  }
  others = {name: member for name, member in module.members.items() if name not in modules}
  module.members.clear()
  module.members.update(others | modules)
  for each in modules.values():
    _sort(each)
