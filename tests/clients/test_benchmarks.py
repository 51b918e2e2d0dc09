"""Benchmarks of servers: guidellm, and vLLM's."""

import json

import environments
import pytest

TOKENIZER = environments.heddle.MODELS / environments.MODEL
REQUESTS, TOKENS = 8, 12


def test_guidellm(server, tmp_path):
    problems = environments.heddle.eval_set(environments.MODEL, REQUESTS)
    data = tmp_path / "problems.jsonl"
    data.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt, _ in problems))
    backend = f"kind=openai_http,target={server.url},model={environments.MODEL},api_key={environments.KEY}"
    command = [
        *[environments.python("libraries"), environments.HERE / "guidellm_without_torch.py", "run", "--backend", backend],
        *["--profile", "kind=concurrent,streams=2", "--constraint", f"kind=max_requests,count={REQUESTS}"],
        *["--tokenizer", f"kind=hf_auto,model={TOKENIZER}", "--data", f"kind=json_file,path={data}"],
        *["--output", f"kind=json,path={tmp_path / 'report.json'}", "--disable-console"],
    ]
    environments.run(command, tmp_path, GUIDELLM__MAX_WORKER_PROCESSES="1")
    (benchmark,) = json.loads((tmp_path / "report.json").read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert totals == {"successful": REQUESTS, "errored": 0, "incomplete": 0, "total": REQUESTS}
    told = benchmark["requests"]["successful"]
    assert sorted(request["output"] for request in told) == sorted(answer for _, answer in problems)
    for request in told:
        assert request["input_metrics"]["text_tokens"] > 0
        assert request["output_metrics"]["text_tokens"] >= len(request["output"].split())
        times = request["info"]["timings"]
        assert times["request_start"] < times["first_token_iteration"] < times["last_token_iteration"]


@pytest.mark.parametrize(("backend", "path"), [("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")])
def test_vllm_bench_serve(server, tmp_path, backend, path):
    if not (environments.HOME / "vllm" / "requirements.txt").exists():
        pytest.skip(f"{environments.HOME / 'vllm'} is not complete: ./dev test prepares it")
    command = [
        *[environments.python("libraries"), environments.HERE / "vllm_bench_serve.py"],
        *["--backend", backend, "--base-url", server.url, "--endpoint", path],
        *["--model", environments.MODEL, "--tokenizer", TOKENIZER, "--dataset-name", "random"],
        *["--random-input-len", "16", "--random-output-len", str(TOKENS), "--num-prompts", str(REQUESTS)],
        *["--ignore-eos", "--num-warmups", "1", "--max-concurrency", "2", "--disable-tqdm"],
        *["--save-result", "--save-detailed", "--result-filename", tmp_path / "report.json"],
        *(["--logprobs", "2"] if backend == "openai" else []),
    ]
    environments.run(command, tmp_path, OPENAI_API_KEY=environments.KEY)
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["completed"], report["failed"], report["errors"]) == (REQUESTS, 0, [""] * REQUESTS)
    # As the server counted them. The prompts are drawn tokens, after which these models mostly say that they have ended.
    assert report["output_lens"] == [TOKENS] * REQUESTS
    assert report["total_input_tokens"] >= 16 * REQUESTS
    assert min(report["ttfts"]) > 0 and report["mean_ttft_ms"] > 0 and report["mean_tpot_ms"] > 0
    # A token is told of when it is there, be its text empty. Chunks may have several.
    assert any(report["itls"])
