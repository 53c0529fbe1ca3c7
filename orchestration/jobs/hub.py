"""Upload of an exported directory to a model hub. Without `export --push-to-hub` nothing here runs and no hub is
contacted.

HF_ENDPOINT selects the hub (default huggingface.co); HF_TOKEN or `hf auth login` selects the user. huggingface_hub
handles both.
"""

import os
import shlex
from pathlib import Path
from typing import Any

from preprocessing.errors import BadInput, ResourceError

YES = ("1", "TRUE", "YES", "ON")


def connect(repo: str) -> Any:
    """A client of the hub. Raises BadInput or ResourceError with one line if the hub cannot be reached or refuses the
    token."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in YES:
        raise BadInput(
            "--push-to-hub: HF_HUB_OFFLINE is set (make sets it), which forbids uploads; unset it, or set it to 0"
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
        raise BadInput(
            f"--push-to-hub {repo}: invalid repository name ({_first_line(error)}); use OWNER/NAME"
        ) from None
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
    try:
        api.whoami()
    except (HTTPError, OSError, ValueError) as error:
        raise ResourceError(
            f"--push-to-hub {repo}: {api.endpoint} cannot be reached, or refuses the token ({_first_line(error)}); log "
            "in with `hf auth login` or HF_TOKEN, or set HF_ENDPOINT to another hub"
        ) from None
    return api


def push(api: Any, folder: Path, repo: str) -> str:
    """Upload a directory as one commit and return the address of the commit. A new repository is private."""
    from huggingface_hub.errors import HTTPError

    try:
        api.create_repo(repo, private=True, exist_ok=True)
        if "/" not in repo:
            repo = f"{api.whoami()['name']}/{repo}"
        commit = api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Exported by Sesame")
    except (HTTPError, OSError, ValueError) as error:
        command = shlex.join(["hf", "upload", repo, str(folder)])
        raise ResourceError(
            f"--push-to-hub {repo}: {_first_line(error)}; the directory {folder} is complete, upload it with "
            f"`{command}`"
        ) from None
    return str(commit)


def _first_line(error: Exception) -> str:
    """First line of the error message of a library."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).rstrip(".")
