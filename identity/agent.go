package identity

import (
	"bytes"
	"encoding/json"
	"mime"
)

// maxAgentBody is how many bytes of a body are searched for an agent.
const maxAgentBody = 16 << 10

// NamesAgent reports whether the field X-Agent-Id names the agent. If so, nothing else is read for
// it (D13).
func NamesAgent(req Request) bool {
	lines := req.Header("X-Agent-Id")
	return len(lines) > 0 && lines[0] != ""
}

// agentOf finds the agent (D13): the first of the field X-Agent-Id, the query parameter agent_id,
// the member agent_id of a JSON body, and the User-Agent.
func agentOf(req Request) string {
	if lines := req.Header("X-Agent-Id"); len(lines) > 0 && lines[0] != "" {
		return lines[0]
	}
	if v, ok := QueryValue(req.RawQuery(), agentParameter); ok && v != "" {
		return v
	}
	if isPlainJSON(req) {
		if agent := AgentInJSON(req.Body(maxAgentBody)); agent != "" {
			return agent
		}
	}
	if lines := req.Header("User-Agent"); len(lines) > 0 {
		return lines[0]
	}
	return ""
}

// isPlainJSON reports whether the body is declared as JSON without a content encoding.
func isPlainJSON(req Request) bool {
	types := req.Header("Content-Type")
	if len(types) != 1 || len(req.Header("Content-Encoding")) > 0 {
		return false
	}
	kind, _, err := mime.ParseMediaType(types[0])
	return err == nil && kind == "application/json"
}

// AgentInJSON returns the member "agent_id" of the JSON object that body begins with, or "" if it
// has none. The name is matched in exact case, and the value must be a string. If the name occurs
// more than once, the last one counts. body may be cut short or malformed: what precedes that point
// counts. Only the first 16 KiB are read, so that a backend, which has the whole body, finds the
// agent that was counted.
func AgentInJSON(body []byte) string {
	body = body[:min(len(body), maxAgentBody)]
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	agent := ""
	for d.More() {
		name, err := d.Token()
		if err != nil {
			break
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			break
		}
		if name != "agent_id" {
			continue
		}
		agent = ""
		if len(value) > 0 && value[0] == '"' {
			json.Unmarshal(value, &agent) // it is a valid string, so this cannot fail
		}
	}
	return agent
}
