"""Jobs: one recipe on one text on one cluster, stage by stage.

Read job.py and stages.py first; corpus.py, pretrain.py and evaluate.py are the stages, ray_stages.py the last two on
one Ray, hold_out.py what is held out for them. request.py is what an evaluation is asked for, subject.py which net is
evaluated, grids.py with which hyper-parameters, score_plan.py on which cells. ablation.py is many runs, sample.py what
the net of a run writes, hub.py the way of an export to a hub.
"""

from orchestration.jobs.held_out import tasks_without_text
from orchestration.jobs.job import Job, JobFlags, cluster_of, open_job
from orchestration.jobs.stages import JobPlan, JobStage

__all__ = ["Job", "JobFlags", "JobPlan", "JobStage", "cluster_of", "open_job", "tasks_without_text"]
