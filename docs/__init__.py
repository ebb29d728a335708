"""Scripts behind the documentation; `make docs` runs `generate`. The pages are the Markdown files beside this one."""
