// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

const sample = `<InventoryConfiguration xmlns="` + Namespace + `"><Destination><S3BucketDestination>` +
	`<Bucket>arn:aws:s3:::lists</Bucket><Format>CSV</Format><Prefix>p</Prefix></S3BucketDestination></Destination>` +
	`<IsEnabled>true</IsEnabled><Filter><Prefix>a/</Prefix></Filter><Id>all</Id>` +
	`<IncludedObjectVersions>All</IncludedObjectVersions><OptionalFields><Field>Size</Field><Field>ETag</Field>` +
	`<Field>IsMultipartUploaded</Field><Field>ObjectLockMode</Field></OptionalFields>` +
	`<Schedule><Frequency>Daily</Frequency></Schedule></InventoryConfiguration>`

func TestConfigurationsAreChecked(t *testing.T) {
	c, err := Parse([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	if doc, err := c.XML(); err != nil || string(doc) != sample {
		t.Errorf("%s\nbecomes\n%s: %v", sample, doc, err)
	}
	for change, code := range map[[2]string]string{
		{"<Id>all</Id>", ""}:                          "MalformedXML",
		{"<Id>all</Id>", "<Id>a/b</Id>"}:              "MalformedXML",
		{">All<", ">Some<"}:                           "MalformedXML",
		{">Daily<", ">Hourly<"}:                       "MalformedXML",
		{"arn:aws:s3:::lists", "lists"}:               "MalformedXML",
		{"arn:aws:s3:::lists", "arn:aws:s3:::"}:       "MalformedXML",
		{">CSV<", ">Parquet<"}:                        "NotImplemented",
		{">CSV<", ">TSV<"}:                            "MalformedXML",
		{">Size<", ">Weight<"}:                        "MalformedXML",
		{">Size<", ">ETag<"}:                          "MalformedXML",
		{">Size<", ">ObjectAccessControlList<"}:       "NotImplemented",
		{">true<", ">maybe<"}:                         "MalformedXML",
		{"<IsEnabled>true</IsEnabled>", ""}:           "MalformedXML",
		{"<Prefix>a/</Prefix>", "<Suffix>a</Suffix>"}: "MalformedXML",
	} {
		_, err := Parse([]byte(strings.Replace(sample, change[0], change[1], 1)))
		if f := (*Fault)(nil); !errors.As(err, &f) || f.Code != code {
			t.Errorf("%q for %q: %v, expected %s", change[1], change[0], err, code)
		}
	}
}

// FuzzParse holds an accepted configuration against its own XML.
func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("<InventoryConfiguration>"))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := Parse(body)
		if err != nil {
			if f := (*Fault)(nil); !errors.As(err, &f) {
				t.Fatalf("%v is no Fault", err)
			}
			return
		}
		doc, err := c.XML()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(doc); err != nil {
			t.Fatalf("%q becomes %q: %v", body, doc, err)
		}
	})
}

func TestRowsAreThoseOfS3(t *testing.T) {
	c, err := Parse([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	got := string(c.row(nil, "alice", &object.Info{Bucket: "b", Key: `a/"x,` + "\n", Version: "v1", Latest: true, Size: 7,
		ETag:  "e",
		Parts: []object.PartInfo{{}}, Attributes: map[string]string{object.AttrRetention: `{"Mode":"GOVERNANCE"}`}}))
	if want := `"b","a%2F%22x%2C%0A","v1","true","false","7","e","true","GOVERNANCE"` + "\n"; got != want {
		t.Errorf("%s, expected %s", got, want)
	}
	got = string(c.row(nil, "alice", &object.Info{Bucket: "b", Key: "k", Version: object.NullVersion, Marker: true}))
	if want := `"b","k","","false","true","","","",""` + "\n"; got != want {
		t.Errorf("%s, expected %s", got, want)
	}
}

func TestInventoriesAreDueAfterMidnight(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC) // a Wednesday
	w := New(nil, func() time.Time { return now }, nil)
	for _, c := range []struct {
		frequency string
		started   time.Time
		due       bool
	}{
		{daily, now.Add(-time.Hour), false}, {daily, now.Add(-13 * time.Hour), true},
		{weekly, now.AddDate(0, 0, -3), false}, {weekly, now.AddDate(0, 0, -4), true},
	} {
		if got := w.due(&Config{Frequency: c.frequency}, &Report{Started: &c.started}); got != c.due {
			t.Errorf("%s since %v: %v", c.frequency, c.started, got)
		}
	}
	if !w.due(&Config{Frequency: weekly}, &Report{}) {
		t.Error("a new configuration is not due")
	}
}
