// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"crypto/rand"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/s3api/xmldoc"
)

// Limits of a configuration, as in S3.
const (
	maxRules = 1000
	maxID    = 255
	maxNewer = 100
	// maxDays keeps dates within the range of time.Time and of JSON.
	maxDays = 1_000_000
	maxTags = 10

	statusEnabled, statusDisabled = "Enabled", "Disabled"
)

// Fault is the reason why a configuration is refused, with the status and the code of the S3 reply.
type Fault struct {
	Status int
	Code   string
	Reason string
}

// Error returns the code and the reason.
func (f *Fault) Error() string { return f.Code + ": " + f.Reason }

func fault(code, form string, args ...any) error {
	return &Fault{Status: http.StatusBadRequest, Code: code, Reason: fmt.Sprintf(form, args...)}
}

func malformed(form string, args ...any) error { return fault("MalformedXML", form, args...) }

func invalidArgument(form string, args ...any) error { return fault("InvalidArgument", form, args...) }

func invalidRequest(form string, args ...any) error { return fault("InvalidRequest", form, args...) }

// Parse reads a lifecycle configuration and checks it by the rules of S3. A rule without ID gets a random ID. Every
// error of Parse is a *Fault.
func Parse(body []byte) (*Config, error) {
	if err := xmldoc.Check(body, "LifecycleConfiguration"); err != nil {
		return nil, malformed("%v", err)
	}
	if n, _ := xmldoc.Count(body, "Rule"); n > maxRules {
		return nil, invalidRequest("the configuration has %d rules, expected at most %d", n, maxRules)
	}
	c := &Config{}
	if err := xml.Unmarshal(body, c); err != nil {
		if f := (*Fault)(nil); errors.As(err, &f) {
			return nil, f
		}
		return nil, malformed("%v", err)
	}
	c.XMLName = xml.Name{Space: Namespace, Local: "LifecycleConfiguration"}
	if len(c.Rules) == 0 {
		return nil, malformed("the configuration has no Rule")
	}
	seen := map[string]bool{}
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.ID == "" {
			r.ID = rand.Text()
		}
		if err := r.check(); err != nil {
			return nil, err
		}
		if seen[r.ID] {
			return nil, invalidArgument("Rule ID must be unique. Found same ID for more than one rule: %.64q", r.ID)
		}
		seen[r.ID] = true
	}
	return c, nil
}

func (r *Rule) check() error {
	switch {
	case utf8.RuneCountInString(r.ID) > maxID:
		return invalidArgument("ID length should not exceed allowed limit of %d", maxID)
	case r.Status != statusEnabled && r.Status != statusDisabled:
		return malformed("the status %.64q of rule %q, expected Enabled or Disabled", r.Status, r.ID)
	case r.Filter == nil && r.Prefix == nil:
		return malformed("rule %q has neither Filter nor Prefix", r.ID)
	case r.Filter != nil && r.Prefix != nil:
		return malformed("rule %q has Filter and Prefix, expected one of them", r.ID)
	case r.Expiration == nil && r.Noncurrent == nil && r.Abort == nil && len(r.Transitions) == 0 &&
		len(r.NoncurrentMovement) == 0:
		return invalidRequest("At least one action needs to be specified in a rule: rule %q has none", r.ID)
	}
	if err := r.checkFilter(); err != nil {
		return err
	}
	for _, check := range []func() error{r.checkExpiration, r.checkNoncurrent, r.checkAbort, r.checkTransitions} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (r *Rule) checkFilter() error {
	f := r.Filter
	if f == nil {
		return nil
	}
	n := 0
	for _, set := range []bool{f.Prefix != nil, f.Tag != nil, f.Greater != nil, f.Less != nil, f.And != nil} {
		if set {
			n++
		}
	}
	if n > 1 {
		return malformed("the Filter of rule %q has %d conditions, expected one, or And around them", r.ID, n)
	}
	s := r.selection()
	if len(s.tags) > maxTags {
		return invalidRequest("rule %q has %d tags, expected at most %d", r.ID, len(s.tags), maxTags)
	}
	seen := map[string]bool{}
	for _, t := range s.tags {
		switch {
		case t.Key == "" || utf8.RuneCountInString(t.Key) > 128 || utf8.RuneCountInString(t.Value) > 256:
			return fault("InvalidTag", "the tag %.64q of rule %q, expected a key of 1 to 128 and a value of up to 256 "+
				"characters", t.Key, r.ID)
		case seen[t.Key]:
			return invalidRequest("Duplicate Tag Keys are not allowed: %.64q in rule %q", t.Key, r.ID)
		}
		seen[t.Key] = true
	}
	switch {
	case s.greater != nil && *s.greater < 0, s.less != nil && *s.less < 1:
		return invalidRequest("a size of rule %q is negative, or nothing can be less than it", r.ID)
	case s.greater != nil && s.less != nil && *s.greater >= *s.less:
		return invalidRequest("'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan' in rule %q", r.ID)
	}
	return nil
}

func checkDays(name string, days int) error {
	if days < 1 || days > maxDays {
		return invalidArgument("'%s' must be a positive integer: %d, expected 1 to %d", name, days, maxDays)
	}
	return nil
}

func checkDate(d *Date) error {
	if !d.Equal(d.Truncate(24 * time.Hour)) {
		return invalidArgument("'Date' must be at midnight GMT: %s", d.UTC().Format(time.RFC3339))
	}
	return nil
}

func (r *Rule) checkExpiration() error {
	e := r.Expiration
	if e == nil {
		return nil
	}
	switch {
	case e.Days != nil && e.Date == nil && e.Marker == nil:
		return checkDays("Days' for Expiration action", *e.Days)
	case e.Days == nil && e.Date != nil && e.Marker == nil:
		return checkDate(e.Date)
	case e.Days == nil && e.Date == nil && e.Marker != nil:
		if *e.Marker && r.selection().narrow() {
			return invalidRequest("ExpiredObjectDeleteMarker cannot be specified with tags or sizes in rule %q, because a "+
				"delete marker has none", r.ID)
		}
		return nil
	}
	return malformed("the Expiration of rule %q has none or several of Days, Date and ExpiredObjectDeleteMarker, "+
		"expected one", r.ID)
}

func (r *Rule) checkNoncurrent() error {
	n := r.Noncurrent
	if n == nil {
		return nil
	}
	if n.Days == nil {
		return malformed("the NoncurrentVersionExpiration of rule %q has no NoncurrentDays", r.ID)
	}
	if err := checkDays("NoncurrentDays' for NoncurrentVersionExpiration action", *n.Days); err != nil {
		return err
	}
	if n.Newer == nil {
		return nil
	}
	if *n.Newer < 1 || *n.Newer > maxNewer {
		return invalidArgument("'NewerNoncurrentVersions' %d of rule %q, expected 1 to %d", *n.Newer, r.ID, maxNewer)
	}
	if r.Filter == nil {
		return invalidRequest("NewerNoncurrentVersions needs a Filter in rule %q", r.ID)
	}
	return nil
}

func (r *Rule) checkAbort() error {
	switch {
	case r.Abort == nil:
		return nil
	case r.Abort.Days == nil:
		return malformed("the AbortIncompleteMultipartUpload of rule %q has no DaysAfterInitiation", r.ID)
	case r.selection().narrow():
		return invalidRequest("AbortIncompleteMultipartUpload cannot be specified with tags or sizes in rule %q", r.ID)
	}
	return checkDays("DaysAfterInitiation' for AbortIncompleteMultipartUpload action", *r.Abort.Days)
}

// checkTransitions refuses all transitions. A date that is wrong in S3 too is named first.
func (r *Rule) checkTransitions() error {
	all := slices.Concat(r.Transitions, r.NoncurrentMovement)
	if len(all) == 0 {
		return nil
	}
	for _, t := range all {
		if t.Date != nil {
			if err := checkDate(t.Date); err != nil {
				return err
			}
		}
	}
	return &Fault{Status: http.StatusNotImplemented, Code: "NotImplemented",
		Reason: fmt.Sprintf("rule %q moves objects to "+
			"the storage class %.64q, and this server has only the class STANDARD: remove the transition", r.ID, all[0].Class)}
}
