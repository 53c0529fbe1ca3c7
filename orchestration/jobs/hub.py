"""An exported folder to a hub of models. Nothing here is called, and no hub is asked anything, without `export
--push-to-hub`.

Which hub: HF_ENDPOINT, else huggingface.co; who: HF_TOKEN, or `hf auth login`. All of it is huggingface_hub's.
"""

import os
import shlex
from pathlib import Path
from typing import Any

from preprocessing.errors import BadInput, ResourceError

YES = ("1", "TRUE", "YES", "ON")


def connect(repo: str) -> Any:
    """The hub, where it can be reached and knows who asks; one line of BadInput or ResourceError where not."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in YES:
        raise BadInput(
            "--push-to-hub: HF_HUB_OFFLINE is set (make sets it), so no hub may be asked; unset it, or set it to 0, to "
            "push"
        )
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HTTPError
        from huggingface_hub.utils import validate_repo_id
    except ImportError:
        raise BadInput("--push-to-hub: huggingface_hub is not installed; install it with pip") from None
    try:
        validate_repo_id(repo)
    except ValueError as error:
        raise BadInput(f"--push-to-hub {repo}: is no name of a repository ({_line(error)}); give OWNER/NAME") from None
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
    try:
        api.whoami()
    except (HTTPError, OSError, ValueError) as error:
        raise ResourceError(
            f"--push-to-hub {repo}: {api.endpoint} cannot be reached, or refuses the token ({_line(error)}); log in "
            f"with "
            "`hf auth login` or HF_TOKEN, or name another hub by HF_ENDPOINT"
        ) from None
    return api


def push(api: Any, folder: Path, repo: str) -> str:
    """Upload a folder as one commit to a repository, made private where it is new; the address of the commit."""
    from huggingface_hub.errors import HTTPError

    try:
        api.create_repo(repo, private=True, exist_ok=True)
        if "/" not in repo:
            repo = f"{api.whoami()['name']}/{repo}"
        made = api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Exported by Sesame")
    except (HTTPError, OSError, ValueError) as error:
        command = shlex.join(["hf", "upload", repo, str(folder)])
        raise ResourceError(
            f"--push-to-hub {repo}: {_line(error)}; the folder {folder} is whole, so that `{command}` goes on"
        ) from None
    return str(made)


def _line(error: Exception) -> str:
    """The first line of what a library says."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).rstrip(".")
