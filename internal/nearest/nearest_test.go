// SPDX-License-Identifier: Apache-2.0

package nearest

import (
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	commands := []string{"bench", "config", "devices", "doctor", "generate", "gpudirect", "inspect", "load", "save",
		"server", "store", "user", "version"}
	for word, want := range map[string]string{
		"lod": "load", "laod": "load", "LOAD": "load", "benhc": "bench", "sever": "server", "serve": "server",
		"gen": "generate", "insp": "inspect",
		"dcotor": "doctor", "conf": "config", "xyzzy": "", "": "", "l": "", "load": "", "frobnicate": "",
		strings.Repeat("load", 1000): "",
	} {
		if got := Of(word, commands); got != want {
			t.Errorf("%.20q: %q, expected %q", word, got, want)
		}
	}
	for word, want := range map[string]string{
		"NEBULAIO_ADRESS": " (did you mean NEBULAIO_ADDRESS?)", "NEBULAIO_DTAA": " (did you mean NEBULAIO_DATA?)", "HOME": "",
	} {
		if got := Hint(word, "NEBULAIO_ADDRESS", "NEBULAIO_DATA"); got != want {
			t.Errorf("%q: %q, expected %q", word, got, want)
		}
	}
	if got := Of("queue_dept", []string{"queue-depth", "queue"}); got != "queue-depth" {
		t.Errorf("%q", got)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"ab", "", 2}, {"ab", "ba", 1}, {"kitten", "sitting", 3}, {"abc", "acb", 1},
		{"same", "same", 0}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d, expected %d", c.a, c.b, got, c.want)
		}
	}
}
