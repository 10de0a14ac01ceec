// Package engines only has tests. They send byte streams, valid and hostile ones, to each of the
// gateway's HTTP/1.1 engines and to nginx, each in front of its own recording upstream, and compare
// the requests that arrive and the answers that return. They must be equal, except for the table in
// docs/engines.md. Whatever the bytes are, an upstream of ours never sees more requests than were
// counted.
//
//	recorder_test.go   the upstream: a strict reader that remembers
//	message_test.go    heads and bodies, read strictly
//	client_test.go     one stream on one connection, and its outcome
//	subject_test.go    the servers: the engines, nginx
//	cases_test.go      testdata/*.txt: streams and their expected outcomes
//	corpus_test.go     compares them
//	generated_test.go  random streams, and a fuzz target
//	table_test.go      compares docs/engines.md with the corpus
package engines
