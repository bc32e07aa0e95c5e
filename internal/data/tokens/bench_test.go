// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkEncode measures Encode on one goroutine, with texts of about 10 KB. Set -golden to a folder of
// testdata/make.py with large tokenizers and a corpus. The script testdata/bench.py measures the Python package
// tokenizers on the same texts.
func BenchmarkEncode(b *testing.B) {
	var texts []string
	readJSON(b, filepath.Join(*golden, "texts.json"), &texts)
	corpus := strings.Join(texts, "\n")
	if raw, err := os.ReadFile(filepath.Join(*golden, "corpus.txt")); err == nil {
		corpus = string(raw)
	}
	corpus = corpus[:min(len(corpus), 4_000_000)]
	var parts [][]byte
	for len(corpus) > 0 {
		n := min(len(corpus), 10_000)
		parts = append(parts, []byte(strings.ToValidUTF8(corpus[:n], "")))
		corpus = corpus[n:]
	}
	for name, path := range tokenizers(b) {
		b.Run(name, func(b *testing.B) {
			tok := open(b, path, Options{})
			bytes, rounds := 0, 0
			before := processorTime(b)
			for b.Loop() {
				rounds++
				for _, p := range parts {
					if _, err := tok.Encode(p); err != nil {
						b.Fatal(err)
					}
				}
			}
			for _, p := range parts {
				bytes += len(p)
			}
			b.SetBytes(int64(bytes))
			b.ReportMetric(float64(bytes)*float64(rounds)/1e6/(processorTime(b)-before).Seconds(), "MB/cpu-s")
		})
	}
}

// processorTime returns the time that all threads of the process have run. It is the fair measure on a busy machine.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkOpen measures Open.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(*golden, "llama3.json")
	var f file
	raw, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(raw, &f) != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		open(b, path, Options{})
	}
}
