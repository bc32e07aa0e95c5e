// SPDX-License-Identifier: Apache-2.0

package console

import (
	"crypto/md5" //nolint:gosec // S3 asks for it
	"encoding/base64"
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/lifecycle"
	"github.com/nebulaio/nebulaio/internal/object"
)

// bucketReply describes a bucket. A part that the user may not read is null.
type bucketReply struct {
	Name       string            `json:"name"`
	Owner      string            `json:"owner"`
	Created    time.Time         `json:"created"`
	Versioning *string           `json:"versioning"`
	Lock       *lockReply        `json:"object_lock"`
	ETag       string            `json:"etag"`
	Tags       map[string]string `json:"tags"`
	Policy     *string           `json:"policy"`
	Lifecycle  lifecycleReply    `json:"lifecycle"`
	Upstream   *upstreamReply    `json:"upstream"`
	May        bucketMay         `json:"may"`
}

type lockReply struct {
	Enabled bool   `json:"enabled"`
	Mode    string `json:"mode"`
	Days    int    `json:"days"`
	Years   int    `json:"years"`
}

type lifecycleReply struct {
	Supported bool             `json:"supported"`
	Why       string           `json:"why"`
	Rules     []lifecycle.Rule `json:"rules"`
}

type upstreamReply struct {
	Endpoint string `json:"endpoint"`
	Bucket   string `json:"bucket"`
}

// bucketMay says which controls the page shows. The S3 front end decides about every request itself.
type bucketMay struct {
	List     bool `json:"list"`
	Get      bool `json:"get"`
	Put      bool `json:"put"`
	Delete   bool `json:"delete"`
	Versions bool `json:"versions"`
	Policy   bool `json:"policy"`
	Settings bool `json:"settings"`
	Remove   bool `json:"remove"`
}

// noLifecycle says why the page shows no lifecycle rules.
const noLifecycle = "you may not read the lifecycle rules of this bucket"

// bucket answers GET buckets/{bucket}.
func (c bucketPage) bucket() (any, error) {
	if err := bucketName(c.name()); err != nil {
		return nil, err
	}
	rights, err := c.rights()
	if err != nil {
		return nil, err
	}
	out := bucketReply{Name: c.name(), Lifecycle: lifecycleReply{Why: noLifecycle, Rules: []lifecycle.Rule{}}}
	seen, err := c.readSettings(&out)
	if err != nil {
		return nil, err
	}
	all, err := c.Buckets(c.r.Context())
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(b object.Bucket) bool { return b.Name == c.name() })
	if i < 0 || !seen && !c.sees(&all[i], &rights) {
		// A bucket that the user may not use looks like one of S3: denied, whether it exists or not.
		_, err := c.s3(http.MethodGet, "", url.Values{"list-type": {"2"}, "max-keys": {"0"}}, nil, nil)
		if err != nil {
			return nil, err
		}
		return nil, &failed{http.StatusNotFound, "NoSuchBucket", "there is no bucket " + quoted(c.name()), ""}
	}
	b := &all[i]
	out.Owner, out.Created, out.ETag = b.Owner, b.Created, string(b.ETag)
	if u := c.opts.Config.Upstream[b.Name]; u != nil && c.admin() {
		out.Upstream = &upstreamReply{Endpoint: u.Endpoint, Bucket: u.BucketAt(b.Name)}
	}
	out.May = c.may(b, &rights, out.Policy != nil)
	return out, nil
}

// settingStep reads one setting of a bucket into a document. The function keep stores the document in the reply.
type settingStep struct {
	query string
	into  any
	keep  func(missing bool)
}

// readSettings asks S3 for the settings of a bucket, and reports whether the user may read one of them.
func (c bucketPage) readSettings(out *bucketReply) (seen bool, err error) {
	var versioning struct {
		Status string `xml:"Status"`
	}
	var tags tagging
	var lock lockDocument
	var rules lifecycle.Config
	steps := []settingStep{
		{"versioning", &versioning, func(bool) {
			text := "off"
			if versioning.Status != "" {
				text = strings.ToLower(versioning.Status)
			}
			out.Versioning = &text
		}},
		{"tagging", &tags, func(bool) { out.Tags = tags.values() }},
		{"object-lock", &lock, func(missing bool) {
			out.Lock = &lockReply{Enabled: !missing && lock.Enabled == "Enabled", Mode: lock.Mode, Days: lock.Days,
				Years: lock.Years}
		}},
		{lifecycle.Setting, &rules, func(bool) {
			out.Lifecycle = lifecycleReply{Supported: true, Rules: append([]lifecycle.Rule{}, rules.Rules...)}
		}},
	}
	for _, s := range steps {
		_, err := c.s3(http.MethodGet, "", url.Values{s.query: {""}}, nil, s.into)
		switch {
		case err == nil, settingMissing(err):
			seen = true
			s.keep(err != nil)
		case denied(err), unsupported(err):
		default:
			return seen, err
		}
	}
	text, err := c.readPolicy()
	switch {
	case err == nil:
		seen, out.Policy = true, &text
	case settingMissing(err):
		seen = true
	case denied(err), unsupported(err):
	default:
		return seen, err
	}
	return seen, nil
}

// maxPolicy is the largest policy that is read or written, in bytes.
const maxPolicy = 64 << 10

// readPolicy returns the text of the bucket's policy.
func (c bucketPage) readPolicy() (string, error) {
	resp, err := c.S3.Do(c.r.Context(), c.as(), request(http.MethodGet, c.name(), "", url.Values{"policy": {""}}, nil))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPolicy))
	return string(text), err
}

// may says what the user may do in a bucket, as far as it does not depend on the key.
func (c bucketPage) may(b *object.Bucket, rights *Rights, policy bool) bucketMay {
	granted := func(want ...iam.Access) bool {
		return slices.ContainsFunc(rights.Grants, func(g iam.Grant) bool {
			return g.Bucket == b.Name && slices.Contains(want, g.Access)
		})
	}
	const anyKey = "any"
	reads := granted(iam.AccessRead, iam.AccessReadWrite)
	writes := granted(iam.AccessWrite, iam.AccessReadWrite)
	own := c.admin() || c.owns(b)
	return bucketMay{
		List:     reads || c.judge(object.ActionList, b.Name, ""),
		Get:      reads || c.judge(object.ActionGet, b.Name, anyKey),
		Put:      writes || c.judge(object.ActionPut, b.Name, anyKey),
		Delete:   writes || c.judge(object.ActionDelete, b.Name, anyKey),
		Versions: reads || c.judge(object.ActionGetVersion, b.Name, anyKey),
		Policy:   own || policy, Settings: own, Remove: own,
	}
}

// setVersioning answers PUT buckets/{bucket}/versioning.
func (c bucketPage) setVersioning() (any, error) {
	var in struct {
		Status string `json:"status"`
	}
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	status := map[string]string{"enabled": "Enabled", "suspended": "Suspended"}[in.Status]
	if status == "" {
		return nil, invalid("the status is "+quoted(in.Status)+"; expected enabled or suspended", "")
	}
	return nil, c.putVersioning(status)
}

func (c bucketPage) putVersioning(status string) error {
	_, err := c.s3(http.MethodPut, "", url.Values{"versioning": {""}},
		[]byte(`<VersioningConfiguration xmlns="`+s3Namespace+`"><Status>`+status+`</Status></VersioningConfiguration>`), nil)
	return err
}

const s3Namespace = "http://s3.amazonaws.com/doc/2006-03-01/"

// tagging is the XML document of tags.
type tagging struct {
	XMLName xml.Name `xml:"Tagging"`
	Set     []tag    `xml:"TagSet>Tag"`
}

type tag struct {
	Key   string `xml:"Key"`
	Value string `xml:"Value"`
}

func (t *tagging) values() map[string]string {
	all := map[string]string{}
	for _, one := range t.Set {
		all[one.Key] = one.Value
	}
	return all
}

// tagDocument returns the XML document of tags, in the order of their names.
func tagDocument(tags map[string]string) ([]byte, error) {
	var t tagging
	for k, v := range tags {
		t.Set = append(t.Set, tag{k, v})
	}
	slices.SortFunc(t.Set, func(a, b tag) int { return strings.Compare(a.Key, b.Key) })
	return xml.Marshal(t)
}

type lockDocument struct {
	Enabled string `xml:"ObjectLockEnabled"`
	Mode    string `xml:"Rule>DefaultRetention>Mode"`
	Days    int    `xml:"Rule>DefaultRetention>Days"`
	Years   int    `xml:"Rule>DefaultRetention>Years"`
}

// setBucketTags answers PUT buckets/{bucket}/tags.
func (c bucketPage) setBucketTags() (any, error) { return nil, c.putTags("") }

// putTags replaces the tags of a bucket or of an object.
func (c *call) putTags(key string) error {
	var in struct {
		Tags map[string]string `json:"tags"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	query := url.Values{"tagging": {""}}
	if v := c.query("version"); key != "" && v != "" {
		query.Set("versionId", v)
	}
	if len(in.Tags) == 0 {
		_, err := c.s3(http.MethodDelete, key, query, nil, nil)
		return err
	}
	doc, err := tagDocument(in.Tags)
	if err != nil {
		return err
	}
	_, err = c.s3(http.MethodPut, key, query, doc, nil)
	return err
}

func md5Of(b []byte) string {
	sum := md5.Sum(b) //nolint:gosec // S3 asks for it
	return base64.StdEncoding.EncodeToString(sum[:])
}
