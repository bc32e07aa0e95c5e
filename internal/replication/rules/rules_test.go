// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/xml"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

func rule(more string) string {
	return "<Rule><ID>r</ID><Status>Enabled</Status>" + more +
		"<Destination><Bucket>arn:nebulaio:replication::there:copies</Bucket></Destination></Rule>"
}

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse([]byte("<ReplicationConfiguration>"+text+"</ReplicationConfiguration>"),
		func(name string) bool { return name == "there" })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestParseRefusesWhatTheServerDoesNotHave(t *testing.T) {
	for _, c := range []struct{ rules, code string }{
		{"", "MalformedXML"},
		{"<Rules/>", "MalformedXML"},
		{strings.Replace(rule(""), "Enabled", "On", 1), "MalformedXML"},
		{rule("<Priority>-1</Priority>"), "MalformedXML"},
		{rule("<Prefix>a</Prefix><Filter><Prefix>a</Prefix></Filter>"), "MalformedXML"},
		{rule("<Filter><Prefix>a</Prefix><Tag><Key>k</Key><Value>v</Value></Tag></Filter>"), "MalformedXML"},
		{rule("<DeleteMarkerReplication><Status>on</Status></DeleteMarkerReplication>"), "MalformedXML"},
		{rule("") + rule(""), "InvalidArgument"},
		{strings.Replace(rule(""), "arn:nebulaio:replication::there:", "arn:aws:s3:::", 1), "InvalidArgument"},
		{strings.Replace(rule(""), "::there:", "::nowhere:", 1), "RemoteTargetNotFoundError"},
		{rule("<ExistingObjectReplication><Status>Enabled</Status></ExistingObjectReplication>"), "NotImplemented"},
		{rule("<DeleteReplication><Status>Enabled</Status></DeleteReplication>"), "NotImplemented"},
		{rule("<SourceSelectionCriteria><SseKmsEncryptedObjects><Status>Enabled</Status></SseKmsEncryptedObjects>" +
			"</SourceSelectionCriteria>"), "NotImplemented"},
		{rule("<Unknown/>"), "NotImplemented"},
		{strings.Replace(rule(""), "</Bucket>", "</Bucket><StorageClass>GLACIER</StorageClass>", 1), "NotImplemented"},
	} {
		_, err := Parse([]byte("<ReplicationConfiguration>"+c.rules+"</ReplicationConfiguration>"),
			func(name string) bool { return name == "there" })
		var f *Fault
		if !errors.As(err, &f) || f.Code != c.code || f.Reason == "" || f.Status < 400 {
			t.Errorf("%s: %v, expected %s", c.rules, err, c.code)
		}
	}
}

func TestRulesChooseVersions(t *testing.T) {
	l := Link{"b", "there", "copies"}
	low := strings.Replace(
		rule("<Priority>1</Priority><Filter><Prefix>a</Prefix></Filter><DeleteMarkerReplication><Status>"+
			"Enabled</Status></DeleteMarkerReplication>"), "<ID>r", "<ID>low", 1)
	high := strings.Replace(rule("<Priority>2</Priority><Filter><Prefix>a/b</Prefix></Filter>"), "<ID>r", "<ID>high", 1)
	tagged := rule("<Filter><And><Prefix>t</Prefix><Tag><Key>k</Key><Value>v</Value></Tag></And></Filter>")
	c := parse(t, low+high+tagged)
	for _, x := range []struct {
		key    string
		tags   string
		marker bool
		want   bool
	}{
		{"a", "", false, true}, {"a", "", true, true}, {"a/b", "", false, true},
		{"a/b", "", true, false}, // the rule with the higher priority has no delete markers
		{"c", "", false, false}, {"t", "", false, false}, {"t", `{"k":"w"}`, false, false},
		{"t", `{"k":"v","x":"y"}`, false, true},
	} {
		info := object.Info{Bucket: "b", Key: x.key, Marker: x.marker, Attributes: map[string]string{object.AttrTags: x.tags}}
		if got := c.Wants(l, &info); got != x.want {
			t.Errorf("%+v is replicated: %v", x, got)
		}
	}
	if links := c.Links("b"); len(links) != 1 || links[0] != l {
		t.Errorf("links %v", links)
	}
	journal := c.JournalRules("b")
	if len(journal) != 3 || journal[0].Prefix != "a" || journal[0].Consumer != "replication/b/there/copies" {
		t.Errorf("journal rules %+v", journal)
	}
}

func TestStatusOfAVersion(t *testing.T) {
	c, l := parse(t, rule("")), Link{"b", "there", "copies"}
	since := time.Unix(100, 0)
	info := object.Info{Bucket: "b", Key: "k", Modified: time.Unix(200, 0), Attributes: map[string]string{}}
	if got := c.Status(since, &info); got != Pending {
		t.Errorf("a new version is %q", got)
	}
	old := info
	old.Modified = time.Unix(50, 0)
	if got := c.Status(since, &old); got != "" {
		t.Errorf("a version from before is %q", got)
	}
	for _, status := range []string{Completed, Failed} {
		if err := SetState(info.Attributes, l, State{status, "v"}); err != nil {
			t.Fatal(err)
		}
		if got := c.Status(since, &info); got != status || StateOf(info.Attributes, l).Version != "v" {
			t.Errorf("status %q, expected %q", got, status)
		}
	}
	replica := object.Info{Attributes: map[string]string{AttrStatus: Replica}}
	if got := (*Config)(nil).Status(since, &replica); got != Replica {
		t.Errorf("a replica is %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("<ReplicationConfiguration>" + rule("<Filter><And><Prefix>t</Prefix></And></Filter>") +
		"</ReplicationConfiguration>"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		c, err := Parse(doc, func(string) bool { return true })
		if err != nil {
			var fault *Fault
			if !errors.As(err, &fault) {
				t.Errorf("the error %v is no Fault", err)
			}
			return
		}
		text, err := xml.Marshal(c)
		if err == nil {
			_, err = Parse(text, func(string) bool { return true })
		}
		if err != nil {
			t.Errorf("%s: %v", fmt.Sprintf("%.200q", text), err)
		}
	})
}
