import json, os
# SNIPPET
for n in range(1, 76):
    try:
        r = http.request("POST", os.environ["TARGET"], body=json.dumps({"n": n}), headers={"Content-Type": "application/json"})
        print(n, r.status)
    except Exception as e:
        print(n, repr(e))
