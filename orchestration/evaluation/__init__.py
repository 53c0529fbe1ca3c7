"""Downstream evaluation of runs and models: plans, trials, scores and their pages.

Read evaluate.py first. An evaluation has its options in eval_request.py, its model in eval_target.py, its
hyperparameters in grids.py and its plan in score_plan.py. Its trials run by trials.py, and task_scores.py combines them
into scores, which score_files.py, score_pages.py, score_figures.py, score_records.py and leaderboard.py write.
saved_models.py saves fine-tuned models, whose labels label_prediction.py predicts; prediction.py predicts tokens.
comparison.py compares the scores of runs. Pretraining and evaluation in one Ray session are in ray_stages.py.
"""
