"""Drives `ringfence session serve --stdio`, and prints each line that was exchanged."""

import base64
import json
import subprocess
import sys
import time

program, *words = sys.argv[1:]
session = subprocess.Popen(
    [program, "session", "serve", "--stdio", "--ask", *words],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
)


def send(ask, **fields):
    line = json.dumps({"ask": ask, **fields})
    print(line)
    session.stdin.write(line + "\n")


def receive(reply):
    line = session.stdout.readline()
    print(line, end="")
    found = json.loads(line)
    assert found["reply"] == reply, line
    return found


def request(ask, reply, **fields):
    send(ask, **fields)
    return receive(reply)


assert request("inspect", "error")["error"]["code"] == "protocol"
assert request("hello", "error", version=0)["error"]["code"] == "protocol-version"
identity = request("hello", "hello", version=1)["session"]

result = request("exec", "result", line="mkdir -p sub; cd sub; export A=é; fail() { return 3; }")
assert result["exitCode"] == 0, result
result = request("exec", "result", line="echo $A $PWD; fail")
assert result["exitCode"] == 3 and result["stdout"].startswith("é /") and result["cwd"].endswith("/sub")

# Output in chunks; bytes that are not UTF-8.
send("exec", line="printf 'a\\377'; sleep 0.2; echo b >&2", stream=True)
chunks = {"stdout": [], "stderr": []}
while True:
    line = session.stdout.readline()
    print(line, end="")
    found = json.loads(line)
    if found["reply"] != "output":
        break
    chunks[found["stream"]].append(found["data"])
assert chunks == {"stdout": [{"base64": "Yf8="}], "stderr": ["b\n"]}, chunks
assert found["reply"] == "result" and found["stdout"] == ""

# Outside of the shell; input.
result = request("start", "result", command=["printf", "%s.", "a b", {"base64": "/w=="}])
assert base64.b64decode(result["stdoutBase64"]) == b"a b.\xff.", result
send("exec", line="read x; echo got $x; cat", input=True)
send("input", data="one\ntwo")
send("input", data="\n")
send("input", data="")
assert receive("result")["stdout"] == "got one\ntwo\n"

# While a command runs, other requests are answered.
send("exec", line="echo started; sleep 30", stream=True)
receive("output")
busy = request("exec", "error", line="true")
assert busy["ask"] == "exec" and busy["error"]["code"] == "busy"
assert request("inspect", "state")["session"] == identity
send("interrupt")
assert receive("result")["exitCode"] == 130
assert request("signal", "error", signal=15)["error"]["code"] == "idle"

# A question.
send("exec", line="echo x >> ../.env; tail -n 1 ../.env")
questions = []
while not questions:
    time.sleep(0.05)
    questions = request("questions", "questions")["questions"]
assert questions[0]["target"].endswith("/.env"), questions
request("answer", "answered", question=questions[0]["question"], answer="allow_session")
result = receive("result")
assert result["stdout"].endswith("x\n") and result["granted"], result

# Mistakes.
error = request("exec", "error", line="ls", timeout=3)["error"]
assert "unknown field `timeout`" in error["message"] and "restart the session" in error["hint"]
assert request("attach", "error", rows=24, columns=80)["error"]["code"] == "unsupported"

assert request("stop", "stopped")["session"] == identity
assert session.wait(10) == 0 and session.stdout.read() == ""
