package identity

import (
	"bytes"
	"encoding/json"
	"mime"
)

// maxAgentBody is how much of a body is looked at for an agent.
const maxAgentBody = 16 << 10

// NamesAgent reports whether the field X-Agent-Id names the agent, so that nothing else is looked at (D13).
func NamesAgent(req Request) bool {
	lines := req.Header("X-Agent-Id")
	return len(lines) > 0 && lines[0] != ""
}

// agentOf finds the agent (D13): the field X-Agent-Id, the query parameter agent_id, the member agent_id of a JSON body;
// when there is none, the User-Agent.
func agentOf(req Request) string {
	if lines := req.Header("X-Agent-Id"); len(lines) > 0 && lines[0] != "" {
		return lines[0]
	}
	if v, ok := req.Query(agentParameter); ok && v != "" {
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

// isPlainJSON reports whether the body is declared as JSON that can be read as it stands.
func isPlainJSON(req Request) bool {
	types := req.Header("Content-Type")
	if len(types) != 1 || len(req.Header("Content-Encoding")) > 0 {
		return false
	}
	kind, _, err := mime.ParseMediaType(types[0])
	return err == nil && kind == "application/json"
}

// AgentInJSON returns the member "agent_id" of the JSON object that body begins with: exact case, a string, the last one
// where it stands several times. It is empty where there is none. body may be cut short or malformed; what stands before
// that counts.
// Only the first 16 KiB are looked at, so that whoever holds more of the body finds the same as whoever counts.
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
			json.Unmarshal(value, &agent) // a decoded string: it cannot fail
		}
	}
	return agent
}
