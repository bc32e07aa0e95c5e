// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// result is everything that a run measured, and the content of the JSON file.
type result struct {
	Date        string            `json:"date"`
	Command     string            `json:"command"`
	Machine     machine           `json:"machine"`
	Versions    map[string]string `json:"versions"`
	Rounds      int               `json:"rounds"`
	Targets     []string          `json:"targets"`
	Rows        []*rowResult      `json:"rows"`
	Completions []completion      `json:"completions,omitempty"`
	Keys        *manyKeys         `json:"keys,omitempty"`
	Memory      map[string]int64  `json:"peak_memory_bytes"`
	Claims      []claim           `json:"claims"`
	Comparisons []comparison      `json:"comparisons,omitempty"`
}

// rowResult has the samples of one row by target, in the order of the rounds.
type rowResult struct {
	Name    string              `json:"name"`
	ByBytes bool                `json:"by_bytes"` // CPU is in seconds per GiB and the rate in MB/s
	Put     bool                `json:"put"`
	Samples map[string][]sample `json:"samples"`
	// Cipher has the CPU time of AES-GCM over the bytes of the row, in the order of the rounds; only in a run with TLS.
	Cipher []sample `json:"cipher,omitempty"`
	// Decryption has the CPU time of AES-GCM over the bytes of the row, in blocks as on the disk; only in a run with
	// encryption.
	Decryption []sample `json:"decryption,omitempty"`
}

func (r *rowResult) each(target string, f func(sample) float64) []float64 {
	var out []float64
	for _, s := range r.Samples[target] {
		out = append(out, f(s))
	}
	return out
}

// rate returns MB/s if ByBytes is set, else operations per second.
func (r *rowResult) rate(target string) []float64 {
	if r.ByBytes {
		return r.each(target, sample.megabytes)
	}
	return r.each(target, sample.rate)
}

// cpu returns the server's CPU time: seconds per GiB if ByBytes is set, else microseconds per operation.
func (r *rowResult) cpu(target string) []float64 {
	if r.ByBytes {
		return r.each(target, sample.cpuPerGiB)
	}
	return r.each(target, sample.cpuPerOp)
}

// claim is a ratio or a figure with its goal. It is shown together with the goal and never asserted.
type claim struct {
	What   string  `json:"what"`
	Got    spread  `json:"got"`
	Wanted float64 `json:"wanted"`
	Above  bool    `json:"at_least"` // the goal is a minimum, else a maximum
	Unit   string  `json:"unit"`
}

func (c claim) met() bool {
	if c.Above {
		return c.Got.Median >= c.Wanted
	}
	return c.Got.Median <= c.Wanted
}

func (c claim) wantedText() string {
	sign := "≤"
	if c.Above {
		sign = "≥"
	}
	return fmt.Sprintf("%s %s%s", sign, number(c.Wanted), c.Unit)
}

// wanted lists the figures that are compared, and their goals.
var wanted = []struct {
	row, ours, theirs string
	cpu               bool // compare the server's CPU time instead of the rate
	limit             float64
}{
	{"GET 64 MiB, 4 streams", "nebulaio", "bare", true, 1.3},
	{"GET 64 MiB, 4 streams", "nebulaio always", "bare", true, 2.2},
	{"GET ranges of 1 MiB, 8 streams", "nebulaio", "bare", true, 1.6},
	{"PUT 4 KiB, 8 streams", "nebulaio", "bare+md5+sync", false, 1},
	{"PUT 4 KiB, 64 streams", "nebulaio", "bare+md5+sync", false, 2},
	{"PUT 64 MiB, 4 streams", "nebulaio", "minio", false, 1},
	{"PUT 64 MiB, 4 streams", "nebulaio crc64", "bare+fdatasync", false, 0.85},
}

// claims computes the figures of wanted that this run contains.
func (r *result) claims() []claim {
	var out []claim
	for _, w := range wanted {
		for _, row := range r.Rows {
			if row.Name != w.row {
				continue
			}
			ours, theirs, what := row.rate(w.ours), row.rate(w.theirs), "rate"
			if w.cpu {
				ours, theirs, what = row.cpu(w.ours), row.cpu(w.theirs), "server CPU"
			}
			if got := ratios(ours, theirs); len(got) > 0 {
				out = append(out, claim{fmt.Sprintf("%s: %s, %s against %s", w.row, what, w.ours, w.theirs), spreadOf(got), w.limit,
					!w.cpu, " x"})
			}
		}
	}
	for _, row := range r.Rows {
		if c, ok := row.tlsClaim(); ok {
			out = append(out, c)
		}
		if c, ok := row.sseClaim(); ok {
			out = append(out, c)
		}
	}
	for _, c := range r.Completions {
		if c.Target == "nebulaio" {
			out = append(out, claim{"CompleteMultipartUpload: time for 1 GiB against 64 MiB in as many parts", c.Ratio, 1.5,
				false, " x"})
		}
	}
	if k := r.Keys; k != nil {
		for _, l := range k.Listings {
			out = append(out, claim{fmt.Sprintf("list, %s: time with %d keys", l.Name, l.Large.Keys),
				spreadOf([]float64{l.Large.P50}), 5, false, " ms"},
				claim{fmt.Sprintf("list, %s: server CPU with %d keys against %d", l.Name, l.Large.Keys, l.Small.Keys),
					spreadOf([]float64{l.Ratio}), 1.5, false, " x"})
		}
		out = append(out, claim{fmt.Sprintf("restart after kill -9 with %d keys", k.Keys), spreadOf(k.Restart), 2, false,
			" s"})
	}
	return out
}
