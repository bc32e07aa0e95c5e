// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/abi"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestClientOptions(t *testing.T) {
	var table abi.Table
	c := &caller{T: t}
	system, err := table.OpenSystem(`{"devices":"off","device_ids":[0,1],"enable_p2p":false}`)
	c.must(err)
	for _, bad := range []string{
		`{"secret_key":"do-not-show","fast":true}`,
		`{"secret_key":"do-not-show","timeout_ms":-1}`,
		`{"secret_key":"do-not-show","timeout_ms":86400001}`,
		`{"secret_key":"do-not-show","retries":-1}`,
		`{"secret_key":"do-not-show"`,
		`{"secret_key":"do-not-show"} {}`,
		`{"secret_key":"do-not-show","door":"ajar"}`,
	} {
		if h, err := table.OpenClient(system, bad); !errs.Is(err, errs.Invalid) || h != 0 {
			t.Errorf("%s: %v", bad, err)
		} else if strings.Contains(err.Error(), "do-not-show") {
			t.Errorf("%s: the secret is shown: %v", bad, err)
		}
	}
	client, err := table.OpenClient(system, `{"endpoint":"http://127.0.0.1:1","access_key":"a","secret_key":"s","door":"off","verify":false,"timeout_ms":1000,"device":"host"}`)
	c.must(err)
	for what, call := range map[string]func() (uint64, error){
		"another handle": func() (uint64, error) { return table.StartStat(system, "b", "k", "") },
		"no handle":      func() (uint64, error) { return table.StartStatus(1234) },
		"reads of it":    func() (uint64, error) { return table.StartObjectReads(system, nil, "") },
		"writes of it":   func() (uint64, error) { return table.StartObjectWrite(system, nebulaio.ObjectWrite{}, "") },
		"commits of it":  func() (uint64, error) { return table.StartCommit(client, 0) },
		"edits of it":    func() (uint64, error) { h, _, err := abi.EditObject(&table, client, ""); return h, err },
		"growth of it":   func() (uint64, error) { return 0, abi.ExtendObject(&table, client, 1) },
		"writes to it":   func() (uint64, error) { return 0, abi.NoteWrite(&table, client, 0, 1) },
	} {
		if _, err := call(); !errs.Is(err, errs.Closed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, call := range map[string]func() (uint64, error){
		"a read of 2^63": func() (uint64, error) {
			return table.StartObjectReads(client, []nebulaio.ObjectRead{{Bucket: "b", Key: "k", Off: -1 << 63}}, "")
		},
		"room of 2^63": func() (uint64, error) {
			return table.StartObjectReads(client, []nebulaio.ObjectRead{{Bucket: "b", Key: "k", DstSize: -1}}, "")
		},
		"a size of -2": func() (uint64, error) {
			return table.StartObjectReads(client, []nebulaio.ObjectRead{{Bucket: "b", Key: "k", Size: -2}}, "")
		},
		"a write of 2^63": func() (uint64, error) {
			return table.StartObjectWrite(client, nebulaio.ObjectWrite{Bucket: "b", Key: "k", Size: -1 << 63}, "")
		},
		"a limit":   func() (uint64, error) { return table.StartList(client, "b", `{"limit":-1}`) },
		"an option": func() (uint64, error) { return table.StartList(client, "b", `{"limits":1}`) },
		"a write option": func() (uint64, error) {
			return table.StartObjectWrite(client, nebulaio.ObjectWrite{}, `{"device":"host"}`)
		},
		"a file of 2^63": func() (uint64, error) {
			h, _, err := table.CreateObject(client, "b", "k", 1<<63, "")
			return h,
				err
		},
	} {
		if _, err := call(); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := table.OpenObject(client, "b", "k", "", ""); !errs.Is(err, errs.Unsupported) {
		t.Error("a file without a door:", err)
	}
	c.must(table.Release(client))
	c.must(table.Release(system))
}

// A question that the server does not answer is ended by a cancellation.
func TestQuestionsAreCancelled(t *testing.T) {
	asked, over := make(chan struct{}, 16), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	defer close(over)
	var table abi.Table
	c := &caller{T: t}
	system, err := table.OpenSystem(`{"devices":"off"}`)
	c.must(err)
	client, err := table.OpenClient(system, `{"endpoint":"`+s.URL+`","access_key":"a","secret_key":"s","door":"off"}`)
	c.must(err)
	job, err := table.StartStat(client, "b", "k", "")
	c.must(err)
	<-asked
	if running, _, _, err := table.Wait(job, time.Millisecond); !running || err != nil {
		t.Errorf("running %v, %v", running, err)
	}
	if _, err := table.Report(job); !errs.Is(err, errs.Invalid) {
		t.Errorf("a report before the end: %v", err)
	}
	c.must(table.Cancel(job))
	if running, _, _, err := table.Wait(job, -1); running || !errs.Is(err, errs.Cancelled) {
		t.Errorf("running %v, %v", running, err)
	}
	if text, err := table.Report(job); err != nil || string(text) != "null" {
		t.Errorf("%s, %v", text, err)
	}
	c.must(table.Release(job))
	job, err = table.StartStatus(client)
	c.must(err)
	_, _, _, err = table.Wait(job, -1)
	c.must(err)
	if text, err := table.Report(job); err != nil || !json.Valid(text) || !strings.Contains(string(text), s.URL) {
		t.Errorf("%s, %v", text, err)
	}
	c.must(table.Release(job))
	c.must(table.Release(client))
	c.must(table.Release(system))
}
