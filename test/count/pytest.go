// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// pytestReport is the report that pytest writes with --junit-xml.
type pytestReport struct {
	Cases []struct {
		Class   string    `xml:"classname,attr"`
		Name    string    `xml:"name,attr"`
		Failure *struct{} `xml:"failure"`
		Error   *struct{} `xml:"error"`
		Skipped *struct {
			Type    string `xml:"type,attr"`
			Message string `xml:"message,attr"`
			Text    string `xml:",chardata"`
		} `xml:"skipped"`
	} `xml:"testsuite>testcase"`
}

// whole matches what pytest says of a file that is skipped as a whole: its message does not have the reason.
var whole = regexp.MustCompile(`(?s), \d+, ['"]Skipped: (.*)['"]\)`)

// deselected matches the number of deselected tests in pytest's last line.
var deselected = regexp.MustCompile(`(\d+) deselected`)

// runPytest runs pytest unchanged, shows its output, and counts tests from the report that pytest writes.
func runPytest(command []string, out io.Writer) (Result, int, error) {
	folder, err := os.MkdirTemp("", "count-")
	if err != nil {
		return Result{}, 1, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	report := filepath.Join(folder, "report.xml")
	cmd := exec.Command(command[0], append(command[1:len(command):len(command)], "--junit-xml="+report)...)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, io.MultiWriter(out, &said), os.Stderr
	code, err := exitCode(cmd.Run())
	if err != nil {
		return Result{}, code, err
	}
	r, err := readPytest(report)
	if errors.Is(err, os.ErrNotExist) && code != 0 {
		return r, code, nil // pytest failed before it began, and has said why
	}
	if m := deselected.FindAllSubmatch(said.Bytes(), -1); m != nil {
		r.Left, _ = strconv.Atoi(string(m[len(m)-1][1]))
	}
	return r, code, err
}

// readPytest counts the tests of a report.
func readPytest(report string) (Result, error) {
	var r Result
	text, err := os.ReadFile(report)
	if err != nil {
		return r, err
	}
	var s pytestReport
	if err := xml.Unmarshal(text, &s); err != nil {
		return r, fmt.Errorf("%s: %w", report, err)
	}
	for _, c := range s.Cases {
		// A test that fails as it was marked to fail has run.
		if c.Skipped != nil && c.Skipped.Type != "pytest.xfail" {
			reason := c.Skipped.Message
			if m := whole.FindStringSubmatch(c.Skipped.Text); m != nil && reason == "collection skipped" {
				reason = m[1]
			}
			r.Skipped = append(r.Skipped, Skipped{Name: strings.TrimPrefix(c.Class+"."+c.Name, "."), Reason: reason})
			continue
		}
		r.Ran++
		if c.Failure != nil || c.Error != nil {
			r.Failed++
		}
	}
	return r, nil
}
