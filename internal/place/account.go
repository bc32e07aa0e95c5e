// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Settings choose the server and the keys of S3 places. Empty fields are filled by Resolve from the environment and the
// files of the AWS tools.
type Settings struct {
	// Endpoint is the URL of the server, or Amazon for Amazon's server of the region.
	Endpoint string
	Region   string
	// Profile is a profile in the AWS files. The keys of a profile that is named here have precedence over AWS_
	// variables.
	Profile                            string
	AccessKey, SecretKey, SessionToken string
	CAFile                             string
	InsecureTLS                        bool
	VirtualHost                        bool
	Connections                        int
	// Env returns the value of an environment variable; nil means os.Getenv.
	Env func(name string) string
}

// Amazon as an endpoint means Amazon's S3 server of the region.
const Amazon = "aws"

// LocalEndpoint is the endpoint if nothing names one: a NebulaIO server on this host.
const LocalEndpoint = "http://localhost:9000"

// Account is the server and the keys that Resolve found.
type Account struct {
	Endpoint    string
	Region      string
	CAFile      string
	InsecureTLS bool
	VirtualHost bool
	Connections int
	// Credentials returns the keys for a request, and renews temporary ones before they expire. If requests are not
	// signed, Credentials is nil.
	Credentials s3.CredentialsProvider
	// From and EndpointFrom say where the keys and the endpoint come from, for messages, and contain no secret.
	From, EndpointFrom string
}

// Options returns the options of a client of the account.
func (a Account) Options() s3.Options {
	return s3.Options{Endpoint: a.Endpoint, Region: a.Region, CAFile: a.CAFile, InsecureTLS: a.InsecureTLS,
		VirtualHost: a.VirtualHost, Connections: a.Connections, Credentials: a.Credentials}
}

// Resolve finds the server and the keys as the AWS tools do. Resolve sends no request: temporary keys are fetched by
// the first call of Credentials.
//
// The endpoint is that of the settings, NEBULAIO_ENDPOINT, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or that of the
// profile. If none is named, a named profile means Amazon, and otherwise the endpoint is LocalEndpoint.
//
// The keys are those of the settings, NEBULAIO_ACCESS_KEY, a profile of the settings, AWS_ACCESS_KEY_ID, a web
// identity, the profile AWS_PROFILE or "default", the container, or the instance. Only requests to Amazon use the
// instance.
func Resolve(ctx context.Context, s Settings) (Account, error) {
	r, err := newResolver(ctx, s)
	if err != nil {
		return Account{}, err
	}
	a := Account{Region: r.region(), CAFile: s.CAFile, InsecureTLS: s.InsecureTLS, VirtualHost: s.VirtualHost,
		Connections: s.Connections}
	if a.CAFile == "" {
		a.CAFile = first(r.get("AWS_CA_BUNDLE"), r.shared.CustomCABundle)
	}
	a.Endpoint, a.EndpointFrom = r.endpoint()
	amazon := a.Endpoint == Amazon
	switch {
	case amazon:
		a.Endpoint = amazonEndpoint(a.Region)
	case !strings.Contains(a.Endpoint, "://"):
		a.Endpoint = "http://" + a.Endpoint // host:port
	}
	a.Credentials, a.From, err = r.credentials(ctx, amazon || strings.HasSuffix(hostOf(a.Endpoint), ".amazonaws.com"))
	return a, err
}

// amazonEndpoint returns Amazon's S3 server of a region.
func amazonEndpoint(region string) string {
	domain := ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain += ".cn"
	}
	return "https://s3." + region + domain
}

func hostOf(endpoint string) string {
	_, rest, _ := strings.Cut(endpoint, "://")
	host, _, _ := strings.Cut(rest, "/")
	host, _, _ = strings.Cut(host, ":")
	return host
}

func first(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}

// resolver holds what the environment and the AWS files say.
type resolver struct {
	s       Settings
	get     func(string) string
	profile string // "default" if none is named
	named   bool   // a setting or AWS_PROFILE names the profile
	files   [2][]string
	shared  config.SharedConfig
	exists  bool // the profile is in a file
}

func newResolver(ctx context.Context, s Settings) (*resolver, error) {
	r := &resolver{s: s, get: s.Env}
	if r.get == nil {
		r.get = os.Getenv
	}
	r.profile = first(s.Profile, r.get("AWS_PROFILE"), r.get("AWS_DEFAULT_PROFILE"))
	if r.named = r.profile != ""; !r.named {
		r.profile = "default"
	}
	home := r.get("HOME")
	for i, f := range []struct{ variable, name string }{{"AWS_CONFIG_FILE", "config"},
		{"AWS_SHARED_CREDENTIALS_FILE", "credentials"}} {
		path := r.get(f.variable)
		if path == "" && home != "" {
			path = filepath.Join(home, ".aws", f.name)
		}
		if path != "" {
			r.files[i] = []string{path}
		}
	}
	for _, files := range r.files {
		for _, path := range files {
			if err := checkFile(path); err != nil {
				return nil, err
			}
		}
	}
	shared, err := config.LoadSharedConfigProfile(ctx, r.profile, func(o *config.LoadSharedConfigOptions) {
		o.ConfigFiles, o.CredentialsFiles = r.files[0], r.files[1]
		if o.ConfigFiles == nil {
			o.ConfigFiles = []string{} // nil would mean the files of the process
		}
		if o.CredentialsFiles == nil {
			o.CredentialsFiles = []string{}
		}
	})
	var missing config.SharedConfigProfileNotExistError
	switch {
	case err == nil:
		r.shared, r.exists = shared, true
	case errors.As(err, &missing) && missing.Profile != r.profile:
		return nil, errs.New(errs.Invalid, "read profile", r.profile,
			fmt.Sprintf("its source_profile %q does not exist", missing.Profile)).WithFix("correct " + r.paths())
	case errors.As(err, &missing) && r.named:
		return nil, errs.New(errs.NotFound, "read profile", r.profile, "is in none of the files "+r.paths()).
			WithFix("correct the profile's name, or make it: aws configure --profile " + r.profile)
	case errors.As(err, &missing):
	default:
		return nil, &errs.Error{Kind: errs.Invalid, Op: "read profile", Name: r.profile, Err: err,
			Fix: "correct " + r.paths()}
	}
	return r, nil
}

// mostFile limits the size of an AWS file.
const mostFile = 1 << 20

// checkFile refuses a file that is not an ordinary small one, because the loader reads it whole.
func checkFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil: // a missing file has no profiles, and the loader reports the others
		return nil
	case path == os.DevNull: // the usual way to name no file
		return nil
	case !info.Mode().IsRegular() || info.Size() > mostFile:
		return errs.New(errs.Invalid, "read profiles", path,
			fmt.Sprintf("has %d bytes and the mode %v; expected a file of at most %d bytes", info.Size(), info.Mode(), mostFile))
	}
	return nil
}

// paths names the files of profiles.
func (r *resolver) paths() string {
	return strings.Join(append(append([]string{}, r.files[0]...), r.files[1]...), " and ")
}

func (r *resolver) region() string {
	return first(r.s.Region, r.get("AWS_REGION"), r.get("AWS_DEFAULT_REGION"), r.shared.Region, s3.DefaultRegion)
}

// endpoint returns the endpoint, and who names it.
func (r *resolver) endpoint() (endpoint, from string) {
	if r.s.Endpoint != "" {
		return r.s.Endpoint, "--endpoint"
	}
	if v := r.get("NEBULAIO_ENDPOINT"); v != "" {
		return v, "NEBULAIO_ENDPOINT"
	}
	ignored := strings.EqualFold(r.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"), "true") ||
		r.shared.IgnoreConfiguredEndpoints != nil && *r.shared.IgnoreConfiguredEndpoints
	if !ignored {
		for _, name := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
			if v := r.get(name); v != "" {
				return v, name
			}
		}
		of, _, _ := r.shared.GetServiceBaseEndpoint(context.Background(), "s3") // reads no file, and cannot fail
		if v := first(of, r.shared.BaseEndpoint); v != "" {
			return v, "profile " + r.profile
		}
	}
	if r.named {
		return Amazon, "profile " + r.profile
	}
	return LocalEndpoint, ""
}

// credentials returns the provider of the keys, and where they come from.
func (r *resolver) credentials(ctx context.Context, amazon bool) (s3.CredentialsProvider, string, error) {
	static := func(access, secret, token, from string) (s3.CredentialsProvider, string, error) {
		if secret == "" {
			return nil, "", errs.New(errs.Invalid, "use access key", access, "has no secret key ("+from+")").
				WithFix("give the secret key too: NEBULAIO_SECRET_KEY, AWS_SECRET_ACCESS_KEY or --secret-file")
		}
		return s3.Static(s3.Credentials{AccessKey: access, SecretKey: secret, SessionToken: token}), from, nil
	}
	switch {
	case r.s.AccessKey != "" && r.s.SecretKey != "":
		return static(r.s.AccessKey, r.s.SecretKey, r.s.SessionToken, "--access-key")
	case r.s.AccessKey != "":
		return static(r.s.AccessKey, first(r.get("NEBULAIO_SECRET_KEY"), r.get("AWS_SECRET_ACCESS_KEY")), "", "--access-key")
	case r.s.Profile == "" && r.get("NEBULAIO_ACCESS_KEY") != "":
		return static(r.get("NEBULAIO_ACCESS_KEY"), r.get("NEBULAIO_SECRET_KEY"), "", "NEBULAIO_ACCESS_KEY")
	case r.s.Profile == "" && r.get("AWS_ACCESS_KEY_ID") != "":
		return static(r.get("AWS_ACCESS_KEY_ID"), r.get("AWS_SECRET_ACCESS_KEY"), r.get("AWS_SESSION_TOKEN"),
			"AWS_ACCESS_KEY_ID")
	}
	identity := r.get("AWS_WEB_IDENTITY_TOKEN_FILE") != ""
	container := r.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "" || r.get("AWS_CONTAINER_CREDENTIALS_FULL_URI") != ""
	switch {
	case r.s.Profile == "" && identity:
		return r.chain(ctx, false, "the web identity of AWS_WEB_IDENTITY_TOKEN_FILE")
	case r.exists && r.givesKeys():
		return r.chain(ctx, true, "profile "+r.profile)
	case container:
		return r.chain(ctx, r.exists, "the container")
	case amazon && !strings.EqualFold(r.get("AWS_EC2_METADATA_DISABLED"), "true"):
		return r.chain(ctx, r.exists, "the instance")
	}
	return nil, "", nil
}

// givesKeys reports whether the profile itself says how to get keys.
func (r *resolver) givesKeys() bool {
	c := &r.shared
	return c.Credentials.HasKeys() || c.CredentialProcess != "" || c.CredentialSource != "" || c.Source != nil ||
		c.WebIdentityTokenFile != "" || c.RoleARN != "" || c.SSOSession != nil || c.SSOSessionName != "" ||
		c.SSOStartURL != "" || c.LoginSession != ""
}

// chain lets the AWS SDK find the keys. Its cache renews temporary keys before they expire.
func (r *resolver) chain(ctx context.Context, profile bool, from string) (s3.CredentialsProvider, string, error) {
	load := []func(*config.LoadOptions) error{
		config.WithRegion(r.region()),
		config.WithSharedConfigFiles(append([]string{}, r.files[0]...)),
		config.WithSharedCredentialsFiles(append([]string{}, r.files[1]...)),
		config.WithCredentialsCacheOptions(func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = renewBefore }),
	}
	if profile {
		load = append(load, config.WithSharedConfigProfile(r.profile))
	}
	c, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, "", r.explain(from, err)
	}
	return func(ctx context.Context) (s3.Credentials, error) {
		k, err := c.Credentials.Retrieve(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return s3.Credentials{}, errs.Wrap("get keys from", from, context.Cause(ctx))
			}
			return s3.Credentials{}, r.explain(from, err)
		}
		return s3.Credentials{AccessKey: k.AccessKeyID, SecretKey: k.SecretAccessKey, SessionToken: k.SessionToken}, nil
	}, from, nil
}
