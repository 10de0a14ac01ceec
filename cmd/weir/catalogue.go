package main

import (
	"fmt"

	"github.com/weirlimit/weir/answer"
)

// messages returns the names of the messages that a policy may choose.
func messages() []string { return answer.Messages() }

// messageText returns the English text of a message of the catalogue.
func messageText(name string) (string, error) {
	text, ok := answer.Text(name)
	if !ok {
		return "", fmt.Errorf("there is no message %q", name)
	}
	return text, nil
}
