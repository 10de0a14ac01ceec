package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
)

// sumsName is the file of sums, in the form of sha256sum.
const sumsName = "SHA256SUMS"

func writeSums(out string) error {
	files, err := os.ReadDir(out) // sorted
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(out, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(content), f.Name())
	}
	return os.WriteFile(filepath.Join(out, sumsName), b.Bytes(), 0o644)
}
