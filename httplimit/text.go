package httplimit

// Text returns the English text of a message; ok is false if no message has that name.
func Text(message string) (text string, ok bool) {
	texts, ok := catalogue[message]
	return texts[0], ok
}
