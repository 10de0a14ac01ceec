// Command bulk measures the sample backend under a full load of data: it starts `weir serve` on a
// new data directory, uploads 100,000 documents in nine languages through PUT /v1/wp/documents,
// asks 2,000 questions, and prints the durations.
//
//	go run ./bulk        as fast as the server accepts them, under a policy with high limits
//	go run ./bulk -pace  at the contract's pace, following its headers; a 429 is a failure
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

func main() {
	o := options{}
	flag.IntVar(&o.documents, "documents", 100_000, "number of documents to synchronise")
	flag.IntVar(&o.questions, "questions", 2_000, "number of questions to ask afterwards")
	flag.BoolVar(&o.paced, "pace", false, "keep to the contract's 60 requests a minute")
	flag.StringVar(&o.weir, "weir", "", "the weir binary to measure; empty builds it")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

type options struct {
	documents, questions int
	paced                bool
	weir                 string
}

const (
	perPage = 500 // the maximum of one request
	seed    = 1
)

func run(o options) error {
	dir, err := os.MkdirTemp("", "weir-bulk")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := start(dir, o)
	if err != nil {
		return err
	}
	defer s.stop()
	fmt.Printf("%s, %d cores; %d documents in pages of %d\n", runtime.Version(), runtime.NumCPU(), o.documents, perPage)

	all := newCorpus(seed)
	var texts int64
	began := time.Now()
	waited := time.Duration(0)
	for from := 0; from < o.documents; from += perPage {
		page := all.page(from, min(perPage, o.documents-from))
		for _, d := range page {
			texts += int64(len(d.Title) + len(d.Text))
		}
		wait, err := s.sync(page, o.paced)
		if err != nil {
			return fmt.Errorf("synchronise from document %d: %w", from, err)
		}
		waited += wait
	}
	took := time.Since(began)
	fmt.Printf("synchronised in %.1f s, %.0f documents/s; waited for a budget %.1f s; no 429\n", took.Seconds(), float64(o.documents)/took.Seconds(), waited.Seconds())
	size, err := sizeOf(dir)
	if err != nil {
		return err
	}
	fmt.Printf("titles and texts %s, data directory %s\n", mebibytes(texts), mebibytes(size))
	if err := s.memory("after the synchronisation"); err != nil {
		return err
	}
	questions := all.questions(o.questions, o.documents)
	if err := s.askAll(questions); err != nil {
		return err
	}
	if err := s.memory("after the questions"); err != nil {
		return err
	}
	return searchAlone(filepath.Join(dir, "data", "sample.db"), questions)
}

func mebibytes(n int64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }

func sizeOf(dir string) (n int64, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "data", "*"))
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			n += info.Size()
		}
	}
	return n, err
}
