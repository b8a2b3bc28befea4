// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

func TestMain(m *testing.M) { cloudsim.Main(m) }

// TestVector is Amazon's own: get-vanilla of the SigV4 test suite.
func TestVector(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "http://example.amazonaws.com/", nil)
	r.Header.Set("X-Amz-Date", "20150830T123600Z")
	s := signed{keyID: "AKIDEXAMPLE", date: "20150830", region: "us-east-1", service: "service", headers: []string{"host", "x-amz-date"}}
	got := s.sign("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20150830T123600Z", canonical(r, nil, s.headers))
	if want := "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

// call sends a form, signed with secret.
func (c *Cloud) call(t *testing.T, secret string, form url.Values, change ...func(*http.Request)) (int, string) {
	t.Helper()
	body := form.Encode()
	r := httptest.NewRequest(http.MethodPost, "https://ec2.eu-test-1.amazonaws.com/", strings.NewReader(body))
	at := c.now().UTC()
	amzDate := at.Format("20060102T150405Z")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	r.Header.Set("X-Amz-Date", amzDate)
	s := signed{KeyID, at.Format("20060102"), Region, "ec2", []string{"content-type", "host", "x-amz-date"}, ""}
	s.signature = s.sign(secret, amzDate, canonical(r, []byte(body), s.headers))
	r.Header.Set("Authorization", algorithm+" Credential="+s.keyID+"/"+s.date+"/"+Region+"/ec2/aws4_request, SignedHeaders="+strings.Join(s.headers, ";")+", Signature="+s.signature)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, r)
	data, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(data)
}

func form(pairs ...string) url.Values {
	f := url.Values{"Version": {"2016-11-15"}}
	for i := 0; i < len(pairs); i += 2 {
		f.Set(pairs[i], pairs[i+1])
	}
	return f
}

func run(more ...string) url.Values {
	return form(append([]string{
		"Action", "RunInstances", "MinCount", "1", "MaxCount", "1", "ImageId", AMI, "InstanceType", "m6a.large", "ClientToken", "t",
		"NetworkInterface.1.DeviceIndex", "0", "NetworkInterface.1.SubnetId", SubnetA, "NetworkInterface.1.SecurityGroupId.1", Group,
	}, more...)...)
}

func newVolume(more ...string) url.Values {
	f := form("Action", "CreateVolume", "AvailabilityZone", Region+"a")
	for i := 0; i < len(more); i += 2 {
		f.Set(more[i], more[i+1])
	}
	return f
}

// TestRefuses is what EC2 would refuse.
func TestRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		form url.Values
		want string
	}{
		"right":                  {run(), "<instanceId>i-"},
		"unknown action":         {form("Action", "RunInstance"), "InvalidAction"},
		"unknown version":        {url.Values{"Action": {"DescribeInstances"}, "Version": {"2016-01-01"}}, "NoSuchVersion"},
		"unknown parameter":      {run("InstancType", "x"), "UnknownParameter"},
		"unknown below":          {run("CpuOptions.AmdSevSnpp", "enabled"), "UnknownParameter"},
		"gap in a list":          {run("NetworkInterface.3.DeviceIndex", "1"), "UnknownParameter"},
		"structure as text":      {run("CpuOptions", "x"), "UnknownParameter"},
		"missing":                {form("Action", "RunInstances", "MinCount", "1"), "MissingParameter"},
		"no number":              {run("NetworkInterface.1.DeviceIndex", "zero"), "InvalidParameterValue"},
		"no bool":                {run("DryRun", "yes"), "InvalidParameterValue"},
		"not in the enum":        {run("CpuOptions.AmdSevSnp", "on"), "InvalidParameterValue"},
		"unknown type":           {run("InstanceType", "m9z.large"), "InvalidParameterValue"},
		"unknown image":          {run("ImageId", "ami-00000000"), "InvalidAMIID.NotFound"},
		"unknown subnet":         {run("NetworkInterface.1.SubnetId", "subnet-00000000"), "InvalidSubnetID.NotFound"},
		"unknown group":          {run("NetworkInterface.1.SecurityGroupId.1", "sg-00000000"), "InvalidGroup.NotFound"},
		"group of another VPC":   {run("NetworkInterface.1.SecurityGroupId.1", GroupOut), "InvalidParameter"},
		"unknown key pair":       {run("KeyName", "nobody"), "InvalidKeyPair.NotFound"},
		"subnet twice":           {run("SubnetId", SubnetA), "InvalidParameterCombination"},
		"public of two":          {run("NetworkInterface.2.DeviceIndex", "1", "NetworkInterface.2.SubnetId", SubnetA, "NetworkInterface.1.AssociatePublicIpAddress", "true"), "InvalidParameterCombination"},
		"other architecture":     {run("ImageId", ArmAMI), "architecture"},
		"SNP without UEFI":       {run("ImageId", BIOSAMI, "CpuOptions.AmdSevSnp", "enabled"), "UnsupportedOperation"},
		"SNP of another type":    {run("InstanceType", "m5.large", "CpuOptions.AmdSevSnp", "enabled"), "UnsupportedOperation"},
		"user-data not base64":   {run("UserData", "#cloud-config"), "InvalidUserData.Malformed"},
		"user-data too large":    {run("UserData", strings.Repeat("AAAA", 5462)), "16384"},
		"disk too small":         {run("BlockDeviceMapping.1.DeviceName", "/dev/sda1", "BlockDeviceMapping.1.Ebs.VolumeSize", "1"), "InvalidBlockDeviceMapping"},
		"disk of no type":        {run("BlockDeviceMapping.1.DeviceName", "/dev/sda1", "BlockDeviceMapping.1.Ebs.VolumeType", "floppy"), "InvalidParameterValue"},
		"tags of nothing made":   {run("TagSpecification.1.ResourceType", "subnet", "TagSpecification.1.Tag.1.Key", "a"), "not a valid taggable resource"},
		"spot's tags, no spot":   {run("TagSpecification.1.ResourceType", "spot-instances-request", "TagSpecification.1.Tag.1.Key", "a"), "not a valid taggable resource"},
		"reserved tag":           {run("TagSpecification.1.ResourceType", "instance", "TagSpecification.1.Tag.1.Key", "aws:x"), "reserved"},
		"dry run":                {run("DryRun", "true"), "DryRunOperation"},
		"filter":                 {form("Action", "DescribeInstances", "Filter.1.Name", "colour", "Filter.1.Value.1", "red"), "InvalidParameterValue"},
		"ids and pages":          {form("Action", "DescribeInstances", "InstanceId.1", "i-00000000", "MaxResults", "5"), "InvalidParameterCombination"},
		"small pages":            {form("Action", "DescribeInstances", "MaxResults", "4"), "Expecting a value between 5"},
		"no id":                  {form("Action", "DescribeInstances", "InstanceId.1", "vm-1"), "InvalidInstanceID.Malformed"},
		"absent":                 {form("Action", "TerminateInstances", "InstanceId.1", "i-00000000"), "InvalidInstanceID.NotFound"},
		"volume of no size":      {newVolume("VolumeType", "gp3"), "MissingParameter"},
		"volume too small":       {newVolume("VolumeType", "st1", "Size", "124"), "125"},
		"volume of no zone":      {form("Action", "CreateVolume", "Size", "1"), "MissingParameter"},
		"volume elsewhere":       {newVolume("Size", "1", "AvailabilityZone", Region+"z"), "InvalidZone.NotFound"},
		"volume without IOPS":    {newVolume("Size", "4", "VolumeType", "io2"), "MissingParameter"},
		"key, not encrypted":     {newVolume("Size", "1", "KmsKeyId", "alias/pods"), "InvalidParameterDependency"},
		"of no snapshot":         {newVolume("SnapshotId", "snap-00000000"), "InvalidSnapshot.NotFound"},
		"copy of nothing":        {form("Action", "CopyVolumes", "SourceVolumeId", "vol-00000000"), "InvalidVolume.NotFound"},
		"copy in a zone":         {form("Action", "CopyVolumes", "SourceVolumeId", "vol-00000000", "AvailabilityZone", Region+"a"), "UnknownParameter"},
		"copy without a source":  {form("Action", "CopyVolumes"), "MissingParameter"},
		"attach without a name":  {form("Action", "AttachVolume", "VolumeId", "vol-00000000", "InstanceId", "i-00000000"), "MissingParameter"},
		"snapshot with a token":  {form("Action", "CreateSnapshot", "VolumeId", "vol-00000000", "ClientToken", "t"), "UnknownParameter"},
		"ids and pages of disks": {form("Action", "DescribeVolumes", "VolumeId.1", "vol-00000000", "MaxResults", "5"), "InvalidParameterCombination"},
		"what it does not have":  {form("Action", "DescribeVpcs"), "the simulator has no"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := New(t, Options{}).call(t, Secret, tc.form); !strings.Contains(got, tc.want) {
				t.Errorf("answered %s, want %s", got, tc.want)
			}
		})
	}
}

func TestSignatures(t *testing.T) {
	describe := form("Action", "DescribeInstances")
	for name, tc := range map[string]struct {
		secret string
		change func(*http.Request)
		want   string
	}{
		"right":        {Secret, func(*http.Request) {}, "DescribeInstancesResponse"},
		"other secret": {"x", func(*http.Request) {}, "AuthFailure"},
		"none":         {Secret, func(r *http.Request) { r.Header.Del("Authorization") }, "AuthFailure"},
		"other key": {Secret, func(r *http.Request) {
			r.Header.Set("Authorization", strings.ReplaceAll(r.Header.Get("Authorization"), KeyID, "AKIANOBODY"))
		}, "AuthFailure"},
		"other body": {Secret, func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(form("Action", "DescribeImages").Encode()))
		}, "AuthFailure"},
		"other header": {Secret, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, "AuthFailure"},
		"other host":   {Secret, func(r *http.Request) { r.Host = "elsewhere" }, "AuthFailure"},
		"a token":      {Secret, func(r *http.Request) { r.Header.Set("X-Amz-Security-Token", "x") }, "AuthFailure"},
		"other date":   {Secret, func(r *http.Request) { r.Header.Set("X-Amz-Date", "20150830T123600Z") }, "AuthFailure"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := New(t, Options{}).call(t, tc.secret, describe, tc.change); !strings.Contains(got, tc.want) {
				t.Errorf("answered %s, want %s", got, tc.want)
			}
		})
	}
}

func (c *Cloud) only(t *testing.T) string {
	t.Helper()
	if len(c.order) != 1 {
		t.Fatalf("there are the instances %v, want one", c.order)
	}
	return c.order[0]
}

func TestTokens(t *testing.T) {
	c := New(t, Options{})
	for range 2 {
		if status, got := c.call(t, Secret, run()); status != http.StatusOK {
			t.Fatal(got)
		}
	}
	id := c.only(t)
	if _, got := c.call(t, Secret, run("KeyName", Key)); !strings.Contains(got, "IdempotentParameterMismatch") {
		t.Errorf("another request with the token: %s", got)
	}
	c.Terminate(id)
	if _, got := c.call(t, Secret, run()); !strings.Contains(got, "IdempotentInstanceTerminated") {
		t.Errorf("after the end: %s", got)
	}
	if status, got := c.call(t, Secret, run("NetworkInterface.1.SubnetId", SubnetB)); status != http.StatusOK || len(c.order) != 2 {
		t.Errorf("in another zone: %s", got)
	}
}

// TestStates take their time, and so does an instance's end.
func TestStates(t *testing.T) {
	c := New(t, Options{Pending: time.Hour, Ending: time.Hour})
	c.call(t, Secret, run())
	id := c.only(t)
	if _, got := c.call(t, Secret, form("Action", "StopInstances", "InstanceId.1", id)); !strings.Contains(got, "IncorrectInstanceState") {
		t.Errorf("stopping a pending one: %s", got)
	}
	c.Change(func(o *Options) { o.Pending = 0 })
	for _, step := range []struct{ action, want string }{
		{"StopInstances", "<name>stopped</name>"}, {"StopInstances", "<name>stopped</name>"},
		{"StartInstances", "<name>running</name>"}, {"TerminateInstances", "<name>shutting-down</name>"},
		{"StartInstances", "IncorrectInstanceState"}, {"TerminateInstances", "<name>shutting-down</name>"},
	} {
		if _, got := c.call(t, Secret, form("Action", step.action, "InstanceId.1", id)); !strings.Contains(got, step.want) {
			t.Errorf("%s: %s, want %s", step.action, got, step.want)
		}
	}
	if left := c.World.Own(); len(left) != 3 || !left[0].Deleting {
		t.Errorf("the books have %v while it ends", left)
	}
}

func TestWildcards(t *testing.T) {
	for _, tc := range []struct {
		pattern, text string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a*", "abc", true}, {"*c", "abc", true}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{`a\*`, "a*", true}, {`a\*`, "ab", false}, {"*", "", true}, {"", "", true}, {"?", "", false}, {`a\\b`, `a\b`, true},
	} {
		if got := wild(tc.pattern, tc.text); got != tc.want {
			t.Errorf("%q matches %q: %v", tc.pattern, tc.text, got)
		}
	}
}

// TestPages go through everything once.
func TestPages(t *testing.T) {
	c := New(t, Options{Page: 7})
	c.Fill(40, nil)
	seen, token := 0, ""
	for range 40 {
		f := form("Action", "DescribeInstances", "MaxResults", "1000")
		if token != "" {
			f.Set("NextToken", token)
		}
		_, got := c.call(t, Secret, f)
		seen += strings.Count(got, "<instanceId>")
		_, rest, more := strings.Cut(got, "<nextToken>")
		if !more {
			break
		}
		token, _, _ = strings.Cut(rest, "<")
	}
	if seen != 40 {
		t.Errorf("the pages show %d of 40", seen)
	}
}
