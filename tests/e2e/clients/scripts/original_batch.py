"""Runs the original's batch_runner with a tool of ours: DATASET URL. What it writes is in
data/run."""

import sys

import batch_runner
from tools.registry import registry

AGENTS = []
make_agent = batch_runner.AIAgent


def keep_agent(**options):
    AGENTS.append(make_agent(**options))
    return AGENTS[-1]


def probe(args, **kw):
    """Says what it is told to say; a picture and guidance on request."""
    if args.get("steer"):
        AGENTS[-1].steer(args["steer"])
    if args.get("picture"):
        parts = [{"type": "image_url", "image_url": {"url": args["picture"]}}]
        if args["say"]:
            parts.append({"type": "text", "text": args["say"]})
        return {"_multimodal": True, "content": parts, "text_summary": args["say"]}
    return args["say"]


def main() -> None:
    schema = {"name": "probe", "description": "Says it.", "parameters": {"type": "object"}}
    registry.register("probe", "probe", schema, probe)
    batch_runner.ALL_POSSIBLE_TOOLS.add("probe")  # lines with other tools are left out
    batch_runner.AIAgent = keep_agent
    batch_runner.sample_toolsets_from_distribution = lambda name: ["probe"]
    batch_runner.main(
        dataset_file=sys.argv[1],
        batch_size=100,
        run_name="run",
        distribution="minimal",
        model="kit-model",
        base_url=sys.argv[2],
        api_key="sk-kit-0123456789abcdef",
        num_workers=1,
    )


if __name__ == "__main__":
    main()
