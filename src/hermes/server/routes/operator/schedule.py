"""The schedule: its jobs, their next times and runs, and changes to them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from hermes.app.control.job_list import describe_jobs, describe_next
from hermes.core.errors import ConfigError
from hermes.core.store import ScheduledJob
from hermes.cron.job_editor import JobEditor, JobWishes
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import ApiError, not_found
from hermes.server.http.response_schemas import DeletedObject, ObjectList
from hermes.server.route import Route, RouteServices


class JobBody(Struct):
    schedule: Annotated[str, Meta(min_length=1, max_length=200)]
    prompt: Annotated[str, Meta(min_length=1, max_length=20_000)]
    name: Annotated[str, Meta(max_length=100)] | None = None
    dry_run: bool = False


class JobEditBody(Struct):
    """What of a job becomes different; what is absent stays."""

    schedule: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    prompt: Annotated[str, Meta(min_length=1, max_length=20_000)] | None = None
    name: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    dry_run: bool = False


class JobActionBody(Struct):
    action: Literal["pause", "resume", "run"]


def _open_editor(services: RouteServices) -> JobEditor:
    return services.runtime.scheduled_prompts.open_editor()


async def list_jobs(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the jobs of the schedule with their next times and last runs."""
    return json_response(ObjectList("list", await describe_jobs(_open_editor(services))))


async def add_job(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Add a job; with dry_run only say when it would run."""
    body, editor = call.decode_body(JobBody), _open_editor(services)
    folder = str(services.runtime.working_folder)
    try:
        wishes = JobWishes(
            schedule=body.schedule, prompt=body.prompt, name=body.name, workdir=folder
        )
        job = editor.draft_job(wishes)
        if not body.dry_run:
            await editor.add_job(job)
    except ConfigError as error:
        raise ApiError(422, str(error), param="schedule", code="invalid") from None
    return json_response(describe_next(editor, job), 201)


async def change_job(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Pause, resume or run a job now."""
    body, editor = call.decode_body(JobActionBody), _open_editor(services)
    job = await _find_job(call, editor)
    match body.action:
        case "pause":
            job = await editor.pause_job(job)
        case "resume":
            job = await editor.resume_job(job)
        case "run":
            services.runtime.spawn_task(_run_job(services, job), f"job {job.name}")
    return json_response(describe_next(editor, job))


async def edit_job(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Change when a job runs, what it does or its name; with dry_run only say when it would run."""
    body, editor = call.decode_body(JobEditBody), _open_editor(services)
    job = await _find_job(call, editor)
    wishes = JobWishes(schedule=body.schedule, prompt=body.prompt, name=body.name)
    try:
        if body.dry_run:
            job = editor.apply_wishes(job, wishes)
        else:
            job = await editor.edit_job(job, wishes)
    except ConfigError as error:
        raise ApiError(422, str(error), param="schedule", code="invalid") from None
    return json_response(describe_next(editor, job))


async def _run_job(services: RouteServices, job: ScheduledJob) -> None:
    await services.runtime.scheduled_prompts.create_scheduler().run_now(job)


async def remove_job(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Remove a job and its history."""
    editor = _open_editor(services)
    job = await _find_job(call, editor)
    await editor.remove_job(job)
    return json_response(DeletedObject(job.id, "hermes.job", True))


async def _find_job(call: ApiCall, editor: JobEditor) -> ScheduledJob:
    wanted = call.path_params["job"]
    for job in await editor.jobs.list_jobs():
        if job.id == wanted:
            return job
    raise not_found("job", wanted)


_ALL, _ONE = "/api/jobs", "/api/jobs/{job}"
_post = partial(Route, "POST", scope="admin")
ROUTES = (
    Route("GET", _ALL, list_jobs, "jobs", ObjectList, scope="admin"),
    _post(_ALL, add_job, "job_add", body=JobBody, status=201, errors=(422,)),
    _post(_ONE, change_job, "job_change", body=JobActionBody, errors=(404,)),
    Route("PATCH", _ONE, edit_job, "job_edit", body=JobEditBody, scope="admin", errors=(404, 422)),
    Route("DELETE", _ONE, remove_job, "job_remove", DeletedObject, scope="admin", errors=(404,)),
)
