// SPDX-License-Identifier: Apache-2.0

package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/console/inside"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// bucketRow is one bucket in the list.
type bucketRow struct {
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	Owner     string    `json:"owner"`
	Owned     bool      `json:"owned"`
	Upstream  bool      `json:"upstream"`
	Directory bool      `json:"directory"`
}

// directorySuffix ends the names of directory buckets.
const directorySuffix = "--x-s3"

// buckets answers GET buckets with the buckets that the user may use.
func (c bucketPage) buckets() (any, error) {
	all, err := c.Buckets(c.r.Context())
	if err != nil {
		return nil, err
	}
	rights, err := c.rights()
	if err != nil {
		return nil, err
	}
	out := struct {
		Buckets []bucketRow `json:"buckets"`
		May     struct {
			Create bool `json:"create"`
		} `json:"may"`
	}{Buckets: []bucketRow{}}
	out.May.Create = c.user.Account.Role != iam.RoleUser
	for i := range all {
		b := &all[i]
		if !c.sees(b, &rights) {
			continue
		}
		out.Buckets = append(out.Buckets, bucketRow{Name: b.Name, Created: b.Created, Owner: b.Owner,
			Owned: b.Owner == c.user.Account.User(), Upstream: b.OnUpstream(),
			Directory: strings.HasSuffix(b.Name, directorySuffix)})
	}
	return out, nil
}

// rights returns the rights of the user, without those of an administrator.
func (c bucketPage) rights() (Rights, error) {
	if a := c.user.Account; c.admin() || a.SessionPolicy != "" || iam.Federated(a.User()) {
		return Rights{}, nil // the judge decides
	}
	return c.Admin.Rights(c.r.Context(), c.user.Account.User())
}

// sees reports whether the user owns a bucket, has a grant in it, or may list it.
func (c bucketPage) sees(b *object.Bucket, rights *Rights) bool {
	if c.admin() || c.owns(b) ||
		slices.ContainsFunc(rights.Grants, func(g iam.Grant) bool { return g.Bucket == b.Name }) {
		return true
	}
	return c.judge(object.ActionList, b.Name, "")
}

func (c bucketPage) judge(action object.Action, bucket, key string) bool {
	return c.Judge.Authorize(c.r.Context(), object.Access{Account: c.user.Account.AccessKey, Action: action,
		Bucket: bucket, Key: key}) == nil
}

// name returns the bucket in the path of the request.
func (c *call) name() string { return c.r.PathValue("bucket") }

// s3 sends a request about the bucket in the path, and decodes the reply into out.
func (c *call) s3(method, key string, query url.Values, body []byte, out any) (http.Header, error) {
	if err := bucketName(c.name()); err != nil {
		return nil, err
	}
	return c.S3.XML(c.r.Context(), c.as(), request(method, c.name(), key, query, body), out)
}

// bucketName refuses names that could name something else than a bucket. The S3 front end checks the rest.
func bucketName(name string) error {
	if name == "" || strings.ContainsAny(name, "/\\?#%") || strings.HasPrefix(name, ".") || len(name) > 255 {
		return &failed{http.StatusBadRequest, "InvalidBucketName", quoted(name) + " is no name of a bucket", ""}
	}
	return nil
}

// makeBucket answers POST buckets.
func (c bucketPage) makeBucket() (any, error) {
	var in struct {
		Name       string `json:"name"`
		Versioning bool   `json:"versioning"`
		ObjectLock bool   `json:"object_lock"`
	}
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if err := bucketName(in.Name); err != nil {
		return nil, err
	}
	r := request(http.MethodPut, in.Name, "", nil, nil)
	if in.ObjectLock {
		r.Header.Set("X-Amz-Bucket-Object-Lock-Enabled", "true")
	}
	if _, err := c.S3.XML(c.r.Context(), c.as(), r, nil); err != nil {
		return nil, err
	}
	if in.Versioning && !in.ObjectLock { // a bucket with object lock has versions already
		c.r.SetPathValue("bucket", in.Name)
		if err := c.putVersioning("Enabled"); err != nil {
			return nil, err
		}
	}
	return made{map[string]string{"name": in.Name}}, nil
}

// removeBucket answers DELETE buckets/{bucket}.
func (c bucketPage) removeBucket() (any, error) {
	_, err := c.s3(http.MethodDelete, "", nil, nil, nil)
	return nil, err
}

// request returns a request of S3 with an optional document.
func request(method, bucket, key string, query url.Values, body []byte) inside.Request {
	r := inside.Request{Method: method, Bucket: bucket, Key: key, Query: query, Header: http.Header{}}
	if body != nil {
		r.Body, r.Size = strings.NewReader(string(body)), int64(len(body))
		r.Header.Set("Content-MD5", md5Of(body))
	}
	return r
}

// settingMissing reports whether an error of S3 says that a bucket does not have a setting.
func settingMissing(err error) bool {
	var f *s3.Fault
	return errors.As(err, &f) && f.Status == http.StatusNotFound && f.Code != "NoSuchBucket"
}

// denied reports whether an error of S3 says that the user may not do it.
func denied(err error) bool {
	var f *s3.Fault
	return errors.As(err, &f) && f.Status == http.StatusForbidden
}

// unsupported reports whether an error of S3 says that the bucket has no such feature, as directory buckets and
// upstream buckets.
func unsupported(err error) bool {
	var f *s3.Fault
	return errors.As(err, &f) && (f.Status == http.StatusNotImplemented || f.Status == http.StatusMethodNotAllowed)
}
