// Package engines is a proof, and has tests only: byte streams, valid ones and hostile ones, go to each of the gateway's
// HTTP/1.1 engines and to nginx, each before a recording upstream of its own, and what reaches that and what comes back is the
// same, but for the table in docs/engines.md. Whatever the bytes are, an upstream of ours never sees more requests than were
// counted.
//
//	recorder_test.go   the upstream: it reads in the plainest way, and remembers
//	message_test.go    heads and bodies, read without any indulgence
//	client_test.go     one stream on one connection, and its outcome
//	subject_test.go    who is compared: the engines, nginx
//	cases_test.go      testdata/*.txt, the streams that are written down, and what is to become of them
//	corpus_test.go     they are compared
//	generated_test.go  streams that are drawn, and a fuzz target
//	table_test.go      docs/engines.md says what the corpus found
package engines
