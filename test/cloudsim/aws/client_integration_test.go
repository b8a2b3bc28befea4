// SPDX-License-Identifier: Apache-2.0

//go:build integration

package aws

import (
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// TestAnotherClient: Amazon's own for Python signs, writes and reads by itself.
func TestAnotherClient(t *testing.T) {
	c := New(t, Options{Pending: time.Millisecond, Stopping: time.Millisecond, Ending: time.Millisecond, Page: 5})
	server := cloudsim.Serve(t, c.Handler())
	client := cloudsim.Client{Module: "botocore", Install: "apt-get install -y --no-install-recommends python3-botocore"}
	client.Run(t,
		[]string{"AWS_ACCESS_KEY_ID=" + KeyID, "AWS_SECRET_ACCESS_KEY=" + Secret, "AWS_DEFAULT_REGION=" + Region},
		server.URL, server.CAFile, AMI, SubnetA, Group)
	if v := c.World.Violations(); len(v) > 0 {
		t.Error(v)
	}
}
