// SPDX-License-Identifier: Apache-2.0

package player

import (
	"bufio"
	"errors"
	"strings"
	"testing"

	"github.com/versity/versitygw/tests/integration"
)

// TestResultsAreThoseOfTheTest reads the output of tests that run at the same time, of which one prints the name of
// another.
func TestResultsAreThoseOfTheTest(t *testing.T) {
	const out = "RUN  A_one\n\033[31mFAIL \033[0mA_one: of another test\nENDED A_two: it is: wrong\nENDED A_one\nPASS A_two\nRUN  A_three\n"
	all := read(bufio.NewScanner(strings.NewReader(out)))
	if r := all["A_one"]; !r.OK() {
		t.Errorf("A_one: %+v, expected a success", r)
	}
	if r := all["A_two"]; r.OK() || r.Why != "it is: wrong" {
		t.Errorf("A_two: %+v, expected a failure", r)
	}
	if r := all["A_three"]; r.OK() {
		t.Errorf("A_three: %+v, expected no success of a test that did not end", r)
	}
}

// Example_runOne shows the lines about a test that passed, two that failed and one that panicked.
func Example_runOne() {
	runOne("A_name", func(*integration.S3Conf) error { return nil }, nil)
	runOne("A_name", func(*integration.S3Conf) error { return errors.New("Other_name: failed: twice\nat once") }, nil)
	runOne("A_name", func(*integration.S3Conf) error { return errors.New("expected a: b") }, nil)
	runOne("A_name", func(*integration.S3Conf) error { panic("no reply") }, nil)
	// Output:
	// ENDED A_name
	//
	// ENDED A_name: failed: twice at once
	//
	// ENDED A_name: expected a: b
	//
	// ENDED A_name: panic: no reply
}
