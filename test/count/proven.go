// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// provenFile is the tracked file that remembers which suites passed. The runner alone writes it.
const provenFile = "test/proven.json"

// proof says that a suite passed whole with certain inputs.
type proof struct {
	// Inputs is the hash of the inputs.
	Inputs string `json:"inputs"`
	// Passed is when the suite passed.
	Passed time.Time `json:"passed"`
	// Minutes is how long it took.
	Minutes float64 `json:"minutes"`
	// Tests is the number of tests that ran.
	Tests int `json:"tests"`
}

// proofs holds the last proof of each suite, by the target of the suite.
type proofs map[string]proof

// readProofs reads the file of proofs below root. A missing file has no proofs.
func readProofs(root string) (proofs, error) {
	text, err := os.ReadFile(filepath.Join(root, provenFile))
	if errors.Is(err, fs.ErrNotExist) {
		return proofs{}, nil
	}
	if err != nil {
		return nil, err
	}
	all := proofs{}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&all); err != nil {
		return nil, fmt.Errorf("%s: %w (fix: git checkout %s)", provenFile, err, provenFile)
	}
	return all, nil
}

// write writes the proofs below root.
func (p proofs) write(root string) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(root, provenFile)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
