// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func TestDaysEndAtMidnight(t *testing.T) {
	for _, c := range []struct {
		from string
		days int
		to   string
	}{
		{"2026-03-01T15:04:05Z", 1, "2026-03-03T00:00:00Z"},
		{"2026-03-01T00:00:00Z", 1, "2026-03-02T00:00:00Z"},
		{"2026-03-01T23:59:59+05:00", 2, "2026-03-04T00:00:00Z"},
		{"2024-02-28T12:00:00Z", 1, "2024-03-01T00:00:00Z"},
	} {
		if got := (Calendar{}).After(at(t, c.from), c.days); !got.Equal(at(t, c.to)) {
			t.Errorf("%d days after %s: %v, expected %s", c.days, c.from, got, c.to)
		}
	}
	if got := (Calendar{Day: time.Second}).After(at(t, "2026-03-01T15:04:05Z"),
		3); !got.Equal(at(t, "2026-03-01T15:04:08Z")) {
		t.Errorf("short days end at %v", got)
	}
}

func TestTheEarliestRuleCounts(t *testing.T) {
	c, err := Parse([]byte(`<LifecycleConfiguration>
		<Rule><ID>slow</ID><Status>Enabled</Status><Filter/><Expiration><Days>9</Days></Expiration></Rule>
		<Rule><ID>off</ID><Status>Disabled</Status><Filter/><Expiration><Days>1</Days></Expiration></Rule>
		<Rule><ID>tagged</ID><Status>Enabled</Status><Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter>
			<Expiration><Days>3</Days></Expiration></Rule>
		<Rule><ID>big</ID><Status>Enabled</Status><Filter><ObjectSizeGreaterThan>100</ObjectSizeGreaterThan></Filter>
			<Expiration><Days>2</Days></Expiration></Rule>
		<Rule><ID>old</ID><Status>Enabled</Status><Filter><Prefix>a/</Prefix></Filter><NoncurrentVersionExpiration>
			<NoncurrentDays>4</NoncurrentDays><NewerNoncurrentVersions>2</NewerNoncurrentVersions>
			</NoncurrentVersionExpiration></Rule>
		<Rule><ID>mark</ID><Status>Enabled</Status><Filter><Prefix>m/</Prefix></Filter><Expiration>
			<ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration></Rule>
		<Rule><ID>up</ID><Status>Enabled</Status><Filter><Prefix>u/</Prefix></Filter><AbortIncompleteMultipartUpload>
			<DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>
		</LifecycleConfiguration>`))
	if err != nil {
		t.Fatal(err)
	}
	made := at(t, "2026-03-01T12:00:00Z")
	latest := Place{Latest: true}
	for name, q := range map[string]struct {
		info   object.Info
		place  Place
		action Action
		rule   string
		to     string
	}{
		"plain": {object.Info{Key: "x", Size: 1}, latest, ActionExpire, "slow", "2026-03-11T00:00:00Z"},
		"size":  {object.Info{Key: "x", Size: 101}, latest, ActionExpire, "big", "2026-03-04T00:00:00Z"},
		"limit": {object.Info{Key: "x", Size: 100}, latest, ActionExpire, "slow", "2026-03-11T00:00:00Z"},
		"tag": {object.Info{Key: "x", Attributes: map[string]string{object.AttrTags: `{"k":"v","l":"w"}`}}, latest,
			ActionExpire, "tagged", "2026-03-05T00:00:00Z"},
		"other tag": {object.Info{Key: "x", Attributes: map[string]string{object.AttrTags: `{"k":"w"}`}}, latest,
			ActionExpire, "slow", "2026-03-11T00:00:00Z"},
		"kept": {object.Info{Key: "a/x"}, Place{Since: made, Newer: 1}, ActionNone, "", ""},
		"noncurrent": {object.Info{Key: "a/x"}, Place{Since: made, Newer: 2}, ActionNoncurrent, "old",
			"2026-03-06T00:00:00Z"},
		"old marker": {object.Info{Key: "a/x", Marker: true}, Place{Since: made, Newer: 2}, ActionNoncurrent, "old",
			"2026-03-06T00:00:00Z"},
		"elsewhere": {object.Info{Key: "b/x"}, Place{Since: made, Newer: 9}, ActionNone, "", ""},
		"covering":  {object.Info{Key: "m/x", Marker: true}, latest, ActionNone, "", ""},
		"alone": {object.Info{Key: "m/x", Marker: true}, Place{Latest: true, Alone: true}, ActionMarker, "mark",
			"2026-03-01T12:00:00Z"},
		"alone late": {object.Info{Key: "x", Marker: true}, Place{Latest: true, Alone: true}, ActionMarker, "slow",
			"2026-03-11T00:00:00Z"},
	} {
		q.info.Modified = made
		v := c.Judge(Calendar{}, &q.info, q.place)
		if v.Action != q.action || v.Rule != q.rule || q.to != "" && !v.At.Equal(at(t, q.to)) {
			t.Errorf("%s: %+v, expected %s by %s at %s", name, v, q.action, q.rule, q.to)
		}
	}
	if v := c.JudgeUpload(Calendar{}, &object.Upload{Key: "u/1", Started: made}); v.Action != ActionAbort ||
		v.Rule != "up" {
		t.Errorf("upload: %+v", v)
	}
	if v := c.JudgeUpload(Calendar{}, &object.Upload{Key: "x", Started: made}); v.Action != ActionNone {
		t.Errorf("upload elsewhere: %+v", v)
	}
}
