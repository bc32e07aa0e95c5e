// SPDX-License-Identifier: Apache-2.0

package transfers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
)

func request(account, operation string, in, out int64) *Request {
	return &Request{End: time.Unix(10, 0), Duration: 2 * time.Second, Operation: operation, Bucket: "b", Key: "k",
		Account: account, Remote: "127.0.0.1:5", Status: 200, In: in, Out: out}
}

func TestTheRingKeepsTheNewest(t *testing.T) {
	var r Ring
	for i := range Most + 5 {
		q := request("alice", "GetObject", 0, int64(i+1))
		if i%2 == 1 {
			q.Account = "bob"
		}
		r.AddRequest(q)
	}
	r.AddRequest(request("alice", "ListObjectsV2", 0, 100)) // moves no content
	all := r.List(Query{Everybody: true, Limit: Most})
	if len(all) != Most || all[0].Bytes != Most+5 || all[Most-1].Bytes != 6 || r.Dropped() != 5 {
		t.Errorf("%d from %d to %d, %d dropped", len(all), all[0].Bytes, all[len(all)-1].Bytes, r.Dropped())
	}
	for i := 1; i < len(all); i++ {
		if all[i].ID != all[i-1].ID-1 {
			t.Fatalf("%d follows %d", all[i].ID, all[i-1].ID)
		}
	}
	for _, x := range r.List(Query{Account: "alice", Limit: 10}) {
		if x.Account != "alice" {
			t.Errorf("%+v", x)
		}
	}
	if got := r.List(Query{Everybody: true, After: Most + 3, Limit: 10}); len(got) != 2 {
		t.Errorf("%d after an ID", len(got))
	}
	if got := r.List(Query{Everybody: true, Source: Door, Limit: 10}); len(got) != 0 {
		t.Errorf("%d of the door", len(got))
	}
	if got := (&Ring{}).List(Query{Everybody: true, Limit: 10}); len(got) != 0 {
		t.Errorf("%d in an empty ring", len(got))
	}
}

func TestAnAnonymousRequestBelongsToNobody(t *testing.T) {
	var r Ring
	r.AddRequest(request("", "GetObject", 0, 5))
	if got := r.List(Query{Account: "alice", Limit: 10}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestARequestSaysWhyItWasNotFaster(t *testing.T) {
	for want, change := range map[string]func(*Request){
		"small transfer":       func(r *Request) { r.Out = 10 },
		"runs on this host":    func(r *Request) { r.Door = true },
		"encrypted the bytes":  func(r *Request) { r.TLS = true },
		"upstream server":      func(r *Request) { r.Served = object.ServedUpstream },
		"bytes by the network": nil,
	} {
		q := request("alice", "GetObject", 0, 8<<20)
		q.Remote = "127.0.0.1:5"
		if change == nil {
			if x := q.transfer(); len(x.Why) != 0 || x.Rate != 4<<20 || x.Routes[0].Bytes != 8<<20 {
				t.Errorf("%+v", x)
			}
			continue
		}
		change(q)
		if x := q.transfer(); len(x.Why) != 1 || !strings.Contains(x.Why[0].Text, want) {
			t.Errorf("%s: %+v", want, x.Why)
		}
	}
	q := request("alice", "PutObject", 0, 300)
	q.Status, q.Error = 403, "AccessDenied"
	if x := q.transfer(); x.Bytes != 0 || x.Error != "AccessDenied" || x.Direction != "write" {
		t.Errorf("%+v", x)
	}
}

func TestAReportShowsRoutesStagesAndTheLimit(t *testing.T) {
	var r Ring
	r.AddReport(&Report{End: time.Unix(10, 0), Account: "alice", PID: 7, Bucket: "b", Key: "k", Objects: 2,
		Parts: []wire.Report{
			{Device: "cuda:0", Route: "direct", Stage: "total", Bytes: 300, Time: 3 * time.Second},
			{Device: "cuda:0", Route: "page_cache", Stage: "total", Bytes: 100, Time: time.Second},
			{Device: "cuda:0", Route: "none", Stage: "read", Bytes: 400, Time: 3 * time.Second},
			{Device: "cuda:0", Route: "none", Stage: "copy", Bytes: 400, Time: time.Second},
			{Write: true, Device: "host", Route: "buffered", Stage: "total", Bytes: 50, Time: time.Second},
			{Write: true, Device: "host", Route: "none", Stage: "write", Bytes: 50, Time: time.Second},
		}})
	all := r.List(Query{Account: "alice", Limit: 10})
	if len(all) != 2 {
		t.Fatalf("%+v", all)
	}
	write, read := all[0], all[1]
	if read.Bytes != 400 || read.Seconds != 4 || read.Rate != 100 || fmt.Sprint(read.Routes) !=
		"[{direct cuda:0 300} {page_cache cuda:0 100}]" {
		t.Errorf("%+v", read)
	}
	if read.Limit == nil || read.Limit.Stage != "read" || read.Limit.Share != 0.75 {
		t.Errorf("%+v", read.Limit)
	}
	if len(read.Why) != 1 || !strings.Contains(read.Why[0].Text, "pinned host memory") {
		t.Errorf("%+v", read.Why)
	}
	if write.Direction != "write" || write.Bytes != 50 || len(write.Why) != 1 {
		t.Errorf("%+v", write)
	}
	r.AddReport(&Report{Account: "alice", Parts: []wire.Report{{Stage: "read", Bytes: 5}}})
	if got := r.List(Query{Account: "alice", Limit: 10}); len(got) != 2 {
		t.Errorf("a report without a total was kept: %+v", got[0])
	}
}
