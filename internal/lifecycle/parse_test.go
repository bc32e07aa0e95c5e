// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/xml"
	"errors"
	"strings"
	"testing"
)

// document returns a configuration with one rule.
func document(inner string) []byte {
	return []byte(`<LifecycleConfiguration xmlns="` + Namespace + `"><Rule>` + inner + `</Rule></LifecycleConfiguration>`)
}

const enabled = "<ID>r</ID><Status>Enabled</Status>"

func TestConfigurationsAreCheckedAsInS3(t *testing.T) {
	all := "<Filter/>"
	for _, c := range []struct{ name, rule, code string }{
		{"expiration by days", enabled + all + "<Expiration><Days>1</Days></Expiration>", ""},
		{"an old prefix", enabled + "<Prefix/><Expiration><Days>1</Days></Expiration>", ""},
		{"a date", enabled + all + "<Expiration><Date>2030-01-01T00:00:00.000Z</Date></Expiration>", ""},
		{"markers", enabled + all + "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>",
			""},
		{"noncurrent", enabled + all + "<NoncurrentVersionExpiration><NoncurrentDays>3</NoncurrentDays>" +
			"<NewerNoncurrentVersions>5</NewerNoncurrentVersions></NoncurrentVersionExpiration>", ""},
		{"abort", enabled + all + "<AbortIncompleteMultipartUpload><DaysAfterInitiation>7</DaysAfterInitiation>" +
			"</AbortIncompleteMultipartUpload>", ""},
		{"sizes and tags",
			enabled + "<Filter><And><Prefix>a</Prefix><Tag><Key>k</Key><Value>v</Value></Tag><Tag><Key>l</Key>" +
				"<Value/></Tag><ObjectSizeGreaterThan>1</ObjectSizeGreaterThan><ObjectSizeLessThan>9</ObjectSizeLessThan></And>" +
				"</Filter><Expiration><Days>1</Days></Expiration>", ""},

		{"no status", "<ID>r</ID>" + all + "<Expiration><Days>1</Days></Expiration>", "MalformedXML"},
		{"a small letter", "<Status>enabled</Status>" + all + "<Expiration><Days>1</Days></Expiration>", "MalformedXML"},
		{"no filter", enabled + "<Expiration><Days>1</Days></Expiration>", "MalformedXML"},
		{"filter and prefix", enabled + all + "<Prefix>a</Prefix><Expiration><Days>1</Days></Expiration>", "MalformedXML"},
		{"two conditions", enabled + "<Filter><Prefix>a</Prefix><ObjectSizeLessThan>9</ObjectSizeLessThan></Filter>" +
			"<Expiration><Days>1</Days></Expiration>", "MalformedXML"},
		{"no action", enabled + all, "InvalidRequest"},
		{"no day", enabled + all + "<Expiration><Days>0</Days></Expiration>", "InvalidArgument"},
		{"many days", enabled + all + "<Expiration><Days>1000001</Days></Expiration>", "InvalidArgument"},
		{"no number", enabled + all + "<Expiration><Days>x</Days></Expiration>", "MalformedXML"},
		{"not midnight", enabled + all + "<Expiration><Date>2030-01-01T00:00:01Z</Date></Expiration>", "InvalidArgument"},
		{"no date", enabled + all + "<Expiration><Date>tomorrow</Date></Expiration>", "MalformedXML"},
		{"days and date", enabled + all + "<Expiration><Days>1</Days><Date>2030-01-01T00:00:00Z</Date></Expiration>",
			"MalformedXML"},
		{"an empty expiration", enabled + all + "<Expiration/>", "MalformedXML"},
		{"markers with tags", enabled + "<Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter><Expiration>" +
			"<ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>", "InvalidRequest"},
		{"abort with sizes", enabled + "<Filter><ObjectSizeLessThan>9</ObjectSizeLessThan></Filter>" +
			"<AbortIncompleteMultipartUpload><DaysAfterInitiation>7</DaysAfterInitiation></AbortIncompleteMultipartUpload>",
			"InvalidRequest"},
		{"abort without days", enabled + all + "<AbortIncompleteMultipartUpload/>", "MalformedXML"},
		{"many newer", enabled + all + "<NoncurrentVersionExpiration><NoncurrentDays>3</NoncurrentDays>" +
			"<NewerNoncurrentVersions>101</NewerNoncurrentVersions></NoncurrentVersionExpiration>", "InvalidArgument"},
		{"newer without filter", enabled + "<Prefix/><NoncurrentVersionExpiration><NoncurrentDays>3</NoncurrentDays>" +
			"<NewerNoncurrentVersions>1</NewerNoncurrentVersions></NoncurrentVersionExpiration>", "InvalidRequest"},
		{"noncurrent without days", enabled + all + "<NoncurrentVersionExpiration/>", "MalformedXML"},
		{"sizes upside down", enabled + "<Filter><And><ObjectSizeGreaterThan>9</ObjectSizeGreaterThan><ObjectSizeLessThan>9" +
			"</ObjectSizeLessThan></And></Filter><Expiration><Days>1</Days></Expiration>", "InvalidRequest"},
		{"a tag twice",
			enabled + "<Filter><And><Tag><Key>k</Key><Value>v</Value></Tag><Tag><Key>k</Key><Value>w</Value></Tag>" +
				"</And></Filter><Expiration><Days>1</Days></Expiration>", "InvalidRequest"},
		{"a tag without key", enabled + "<Filter><Tag><Key/><Value>v</Value></Tag></Filter><Expiration><Days>1</Days>" +
			"</Expiration>", "InvalidTag"},
		{"a long ID", "<ID>" + strings.Repeat("a", 256) + "</ID><Status>Enabled</Status>" + all +
			"<Expiration><Days>1</Days></Expiration>", "InvalidArgument"},
		{"the same ID", enabled + all + "<Expiration><Days>1</Days></Expiration></Rule><Rule>" + enabled + all +
			"<Expiration><Days>2</Days></Expiration>", "InvalidArgument"},
		{"a transition", enabled + all + "<Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>",
			"NotImplemented"},
		{"a transition at noon", enabled + all + "<Transition><Date>2030-01-01T12:00:00Z</Date><StorageClass>GLACIER" +
			"</StorageClass></Transition>", "InvalidArgument"},
		{"a noncurrent transition", enabled + all + "<NoncurrentVersionTransition><NoncurrentDays>1</NoncurrentDays>" +
			"<StorageClass>GLACIER</StorageClass></NoncurrentVersionTransition>", "NotImplemented"},
		{"an unknown element", enabled + all + "<Expire/>", "MalformedXML"},
		{"an element twice", enabled + all + "<Expiration><Days>1</Days></Expiration><Expiration><Days>2</Days></Expiration>",
			"MalformedXML"},
	} {
		config, err := Parse(document(c.rule))
		code := ""
		var f *Fault
		if errors.As(err, &f) {
			code = f.Code
		} else if err != nil {
			t.Errorf("%s: the error %v is no Fault", c.name, err)
		}
		if code != c.code {
			t.Errorf("%s: %v, expected %q", c.name, err, c.code)
		}
		if err != nil {
			continue
		}
		doc, err := config.XML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(doc)
		if err != nil {
			t.Errorf("%s: %s is refused: %v", c.name, doc, err)
			continue
		}
		if twice, err := again.XML(); err != nil || string(twice) != string(doc) {
			t.Errorf("%s: %s becomes %s: %v", c.name, doc, twice, err)
		}
	}
	for name, doc := range map[string]string{"nothing": "", "no rule": "<LifecycleConfiguration/>",
		"another document": "<Tagging/>",
		"1,001 rules":      "<LifecycleConfiguration>" + strings.Repeat("<Rule/>", 1001) + "</LifecycleConfiguration>"} {
		if _, err := Parse([]byte(doc)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestARuleWithoutIDGetsOne(t *testing.T) {
	c, err := Parse(document("<Status>Enabled</Status><Filter/><Expiration><Days>1</Days></Expiration>"))
	if err != nil || c.Rules[0].ID == "" {
		t.Fatalf("%+v, %v", c, err)
	}
}

// FuzzParse holds an accepted configuration against its own XML.
func FuzzParse(f *testing.F) {
	f.Add(document(enabled + "<Filter><Prefix>a</Prefix></Filter><Expiration><Days>1</Days></Expiration>"))
	f.Add(
		document(enabled + "<Filter><And><Tag><Key>k</Key><Value>v</Value></Tag><ObjectSizeLessThan>9</ObjectSizeLessThan>" +
			"</And></Filter><NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>"))
	f.Add([]byte("<LifecycleConfiguration>"))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := Parse(body)
		if err != nil {
			if f := (*Fault)(nil); !errors.As(err, &f) {
				t.Fatalf("%v is no Fault", err)
			}
			return
		}
		doc, err := xml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Parse(doc); err != nil || len(again.Rules) != len(c.Rules) {
			t.Fatalf("%q becomes %q: %v", body, doc, err)
		}
	})
}
