// SPDX-License-Identifier: Apache-2.0

package meters_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/meters"
)

func TestARecordedSampleIsTheSame(t *testing.T) {
	for _, c := range situations() {
		s := newStage(t, 3)
		s.Write()
		m, err := meters.Open(meters.Options{Root: s.Root, GPUs: s.gpu, Now: s.Clock})
		if err != nil {
			t.Fatal(err)
		}
		m.Read(t.Context())
		c.second(s)
		s.Write()
		want := m.Read(t.Context())
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		r := meters.ReadRecording(bytes.NewReader(append(text, '\n')), "test")
		got, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := json.Marshal(got); !bytes.Equal(again, text) || !reflect.DeepEqual(got.Window(), want.Window()) {
			t.Errorf("%s: the recorded sample differs:\n%s\n%s", c.name, text, again)
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("after the last sample: %v", err)
		}
	}
}

func TestRecordingsThatAreNone(t *testing.T) {
	good := `{"version":1,"time":"2026-11-17T12:00:00Z","unknown":{"x":1},"verdict":{"bound":"x"}}`
	for name, c := range map[string]struct {
		text    string
		samples int
		kind    errs.Kind // 0 means the end
		want    string
	}{
		"empty":           {"", 0, 0, ""},
		"blank lines":     {"\n\n" + good + "\n\n", 1, 0, ""},
		"no last newline": {good + "\n" + good, 2, 0, ""},
		"cut at the end":  {good + "\n" + good[:30], 1, 0, ""},
		"broken in between": {good + "\n" + good[:30] + "\n" + good + "\n", 1, errs.Corrupt,
			"test line 2: the line is no sample"},
		"another file": {`{"name":"x"}` + "\n", 0, errs.Corrupt, "no version or no time"},
		"newer": {strings.Replace(good, ":1,", ":99,", 1) + "\n", 0, errs.Unsupported,
			"version 99; expected at most 1"},
		"endless line": {strings.Repeat("x", 9<<20), 0, errs.Corrupt, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			r := meters.ReadRecording(strings.NewReader(c.text), "test")
			n := 0
			var err error
			for ; ; n++ {
				var s *meters.Sample
				if s, err = r.Next(); err != nil {
					break
				}
				if s.Time != time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC) {
					t.Errorf("%+v", s)
				}
			}
			if n != c.samples {
				t.Errorf("%d samples, expected %d", n, c.samples)
			}
			if c.kind == 0 && !errors.Is(err, io.EOF) || c.kind != 0 && (!errs.Is(err, c.kind) ||
				!strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v", err)
			}
		})
	}
}
