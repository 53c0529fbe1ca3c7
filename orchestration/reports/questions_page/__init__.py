"""One HTML page with the questions of evaluations and the answers of one or two models.

page.py selects the questions and fills the template. The page needs no server and loads nothing.
"""

from orchestration.reports.questions_page.page import AnswerPage, questions_page

__all__ = ["AnswerPage", "questions_page"]
