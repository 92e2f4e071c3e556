"""What docs/clients.md shows, in full: bring a skill, run a command in it, read the result."""

import json
import os
from io import BytesIO

from ringfence_client import AuthenticatedClient
from ringfence_client.api.executions import execute
from ringfence_client.api.skills import list_files, upload_skills
from ringfence_client.models import Archive, Command, ExecuteResult, Problem, UploadResult
from ringfence_client.types import File

client = AuthenticatedClient(base_url=os.environ["RINGFENCE_URL"], token=os.environ["RINGFENCE_TOKEN"])

with open(os.environ["ARCHIVE"], "rb") as archive:
    form = Archive(file=File(payload=BytesIO(archive.read()), file_name="skills.zip"))
uploaded = upload_skills.sync("alice", "helper", client=client, body=form)
assert isinstance(uploaded, UploadResult), uploaded
skill = uploaded.skills[0]

command = Command(command="python3 run.py; cat /etc/shadow")
result = execute.sync("alice", "helper", skill.skill_id, client=client, body=command)
assert isinstance(result, ExecuteResult), result

absent = list_files.sync("alice", "helper", "nothing", client=client)
assert isinstance(absent, Problem), absent
print(
    json.dumps(
        {
            "skill": skill.name,
            "stdout": result.stdout,
            "exitCode": result.exit_code,
            "blocked": result.blocked,
            "denied": [denial.target for denial in result.denials],
            "absent": absent.code,
        }
    )
)
