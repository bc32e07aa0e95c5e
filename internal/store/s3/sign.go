// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// UnsignedPayload is the payload hash of a request whose signature does not cover its body.
const UnsignedPayload = "UNSIGNED-PAYLOAD"

// MaxPresign is the longest time for which a presigned URL is valid, as in S3.
const MaxPresign = 7 * 24 * time.Hour

// SignRequest signs a request with the signature of version 4 for S3. The parameter hash is the SHA-256 of the body in
// hexadecimal digits, UnsignedPayload, or empty for a request without a body. SignRequest sets the headers of the
// signature and of the hash. The path of the request's URL must be encoded as EscapePath does.
func SignRequest(ctx context.Context, r *http.Request, keys Credentials, region, hash string, at time.Time) error {
	if hash == "" {
		hash = emptyHash
	}
	r.Header.Set("X-Amz-Content-Sha256", hash)
	err := plainSigner().SignHTTP(ctx, awsKeys(keys), r, hash, "s3", region, at)
	return errs.Wrap("sign request for", r.URL.Path, err)
}

// PresignGet returns a URL with which anybody can read an object until the URL expires. The parameter endpoint is the
// URL of the server, and version may be empty. PresignGet fails with kind Invalid if expires is below one second or
// above MaxPresign.
func PresignGet(ctx context.Context, endpoint *url.URL, bucket, key, version string, keys Credentials, region string,
	at time.Time, expires time.Duration) (string, error) {
	const op = "make a presigned URL of"
	if expires < time.Second || expires > MaxPresign {
		return "", errs.New(errs.Invalid, op, URL(bucket, key), "the URL is to be valid for "+expires.String()+
			"; expected 1s to "+MaxPresign.String())
	}
	u := *endpoint
	u.Path = "/" + bucket + "/" + key
	u.RawPath = EscapePath(u.Path)
	query := url.Values{"X-Amz-Expires": {strconv.Itoa(int(expires / time.Second))}}
	if version != "" {
		query.Set("versionId", version)
	}
	u.RawQuery = query.Encode()
	r := &http.Request{Method: http.MethodGet, URL: &u, Host: u.Host, Header: http.Header{}}
	signed, _, err := plainSigner().PresignHTTP(ctx, awsKeys(keys), r, UnsignedPayload, "s3", region, at)
	return signed, errs.Wrap(op, URL(bucket, key), err)
}

// plainSigner returns a signer that takes the path of a request as it is, as S3 requires.
func plainSigner() *v4.Signer {
	return v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
}

func awsKeys(c Credentials) aws.Credentials {
	return aws.Credentials{AccessKeyID: c.AccessKey, SecretAccessKey: c.SecretKey, SessionToken: c.SessionToken}
}

// FaultOf reads the error reply to a request that SignRequest signed, and closes the body of the reply.
func FaultOf(r *http.Response) *Fault { return faultOf(r) }
