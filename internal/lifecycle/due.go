// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// Calendar computes when a number of days is over. The zero Calendar is that of S3.
type Calendar struct {
	// Day is the length of a day; 0 means 24 hours. Tests use short days, which end at once and not at midnight.
	Day time.Duration
}

// After returns the time at which the days are over that begin at the time t. As in S3, it is the first midnight UTC
// that is not before t plus the days.
func (c Calendar) After(t time.Time, days int) time.Time {
	if c.Day > 0 {
		return t.Add(time.Duration(days) * c.Day)
	}
	const day = 24 * time.Hour
	end := t.UTC().AddDate(0, 0, days)
	if midnight := end.Truncate(day); midnight.Equal(end) {
		return end
	}
	return end.Truncate(day).Add(day)
}

// Action is what a rule does to a version.
type Action string

// The actions of rules.
const (
	ActionNone       Action = ""
	ActionExpire     Action = "expire"     // remove the current version, or add a delete marker above it
	ActionNoncurrent Action = "noncurrent" // remove a noncurrent version
	ActionMarker     Action = "marker"     // remove a delete marker without other versions
	ActionAbort      Action = "abort"      // abort a multipart upload
)

// Place is the place of a version among the versions of its key.
type Place struct {
	Latest bool      // whether the version is the newest one
	Alone  bool      // whether the key has no other version
	Since  time.Time // if not Latest: the time at which the next newer version was made
	Newer  int       // if not Latest: the number of newer versions that are not the latest
}

// Verdict is the action that comes first for a version.
type Verdict struct {
	Action Action
	Rule   string // ID of the rule
	At     time.Time
}

// earlier keeps the verdict that comes first.
func (v *Verdict) earlier(action Action, rule *Rule, at time.Time) {
	if v.Action == ActionNone || at.Before(v.At) {
		*v = Verdict{Action: action, Rule: rule.ID, At: at}
	}
}

// Judge returns the action that the rules take on a version, and when. The Action is ActionNone if no rule applies.
func (c *Config) Judge(cal Calendar, info *object.Info, p Place) (v Verdict) {
	for i := range c.Rules {
		r := &c.Rules[i]
		if !r.Enabled() || !r.selects(info) {
			continue
		}
		switch {
		case !p.Latest:
			if n := r.Noncurrent; n != nil && (n.Newer == nil || p.Newer >= *n.Newer) {
				v.earlier(ActionNoncurrent, r, cal.After(p.Since, *n.Days))
			}
		case info.Marker && !p.Alone:
		default:
			r.expire(cal, info, &v)
		}
	}
	return v
}

// expire judges the newest version of a key.
func (r *Rule) expire(cal Calendar, info *object.Info, v *Verdict) {
	e := r.Expiration
	if e == nil {
		return
	}
	action := ActionExpire
	if info.Marker {
		action = ActionMarker
	}
	switch {
	case e.Days != nil:
		v.earlier(action, r, cal.After(info.Modified, *e.Days))
	case e.Date != nil:
		v.earlier(action, r, e.Date.Time)
	case *e.Marker && info.Marker:
		v.earlier(action, r, info.Modified)
	}
}

// JudgeUpload returns when the rules abort a multipart upload. The Action is ActionNone if no rule applies.
func (c *Config) JudgeUpload(cal Calendar, u *object.Upload) (v Verdict) {
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Enabled() && r.Abort != nil && strings.HasPrefix(u.Key, r.selection().prefix) {
			v.earlier(ActionAbort, r, cal.After(u.Started, *r.Abort.Days))
		}
	}
	return v
}

// Aborts reports whether a rule can abort multipart uploads.
func (c *Config) Aborts() bool {
	for i := range c.Rules {
		if c.Rules[i].Enabled() && c.Rules[i].Abort != nil {
			return true
		}
	}
	return false
}

// selection is the sum of a rule's conditions.
type selection struct {
	prefix        string
	tags          []Tag
	greater, less *int64
}

// narrow reports whether the selection has conditions that a delete marker or an upload cannot meet.
func (s selection) narrow() bool { return len(s.tags) > 0 || s.greater != nil || s.less != nil }

func (r *Rule) selection() (s selection) {
	text := func(p *string) {
		if p != nil {
			s.prefix = *p
		}
	}
	f := r.Filter
	if f == nil {
		text(r.Prefix)
		return s
	}
	if f.And != nil {
		text(f.And.Prefix)
		return selection{prefix: s.prefix, tags: f.And.Tags, greater: f.And.Greater, less: f.And.Less}
	}
	text(f.Prefix)
	if f.Tag != nil {
		s.tags = []Tag{*f.Tag}
	}
	s.greater, s.less = f.Greater, f.Less
	return s
}

// selects reports whether a rule applies to a version.
func (r *Rule) selects(info *object.Info) bool {
	s := r.selection()
	if !strings.HasPrefix(info.Key, s.prefix) {
		return false
	}
	if info.Marker {
		return !s.narrow()
	}
	if s.greater != nil && info.Size <= *s.greater || s.less != nil && info.Size >= *s.less {
		return false
	}
	if len(s.tags) == 0 {
		return true
	}
	var has map[string]string
	if json.Unmarshal([]byte(info.Attributes[object.AttrTags]), &has) != nil {
		return false // the version has no tags
	}
	for _, t := range s.tags {
		if value, ok := has[t.Key]; !ok || value != t.Value {
			return false
		}
	}
	return true
}
