// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

func infrastructure(platform configv1.PlatformType) *configv1.Infrastructure {
	i := &configv1.Infrastructure{}
	i.Status.PlatformStatus = &configv1.PlatformStatus{Type: platform}
	i.Status.InfrastructureName = "cluster-x"
	return i
}

// TestR6ClustersThatDoNotSayWhatTheyAre is an error with its known text, and no
// panic, Azure without its own part included.
func TestR6ClustersThatDoNotSayWhatTheyAre(t *testing.T) {
	for _, test := range []struct {
		infra *configv1.Infrastructure
		want  error
	}{
		{nil, ErrNoInfrastructure}, {&configv1.Infrastructure{}, ErrNoStatus}, {infrastructure(""), ErrNoPlatform}, {infrastructure("Azure"), nil},
	} {
		if _, _, err := (Cluster{Infrastructure: test.infra}).Values(); !errors.Is(err, test.want) {
			t.Errorf("the error is %v, want %v", err, test.want)
		}
	}
	for err, want := range map[error]string{
		ErrNoStatus: "platform status is not populated on infrastructure", ErrNoPlatform: "no platform provider found on infrastructure",
	} {
		if err.Error() != want {
			t.Error(err)
		}
	}
}

func TestValuesAreWhatTheClusterSays(t *testing.T) {
	i := infrastructure(configv1.VSpherePlatformType)
	i.Status.ControlPlaneTopology = configv1.SingleReplicaTopologyMode
	proxy := &configv1.Proxy{Status: configv1.ProxyStatus{HTTPProxy: "a", HTTPSProxy: "b", NoProxy: "c"}}
	got, platform, err := Cluster{
		Infrastructure: i, Proxy: proxy, Namespace: "ns", Images: bundle.Images{"a": "b"}, TLS: TLS{MinVersion: "VersionTLS12", CipherSuites: "X"},
		Gates: map[string]bool{
			"VSphereMixedNodeEnv": true, "ControllerManagerReleaseLeaderElectionLockOnExit": true, "CloudControllerManagerWebhook": true,
			"CloudControllerManagerWatchBasedRoutesReconciliation": false, "Other": true,
		},
	}.Values()
	want := bundle.Values{
		Flavor: bundle.OpenShift, Namespace: "ns", Images: bundle.Images{"a": "b"}, InfrastructureName: "cluster-x", SingleReplica: true,
		Proxy: &bundle.Proxy{HTTP: "a", HTTPS: "b", None: "c"}, TLSMinVersion: "VersionTLS12", TLSCipherSuites: "X",
		FeatureGates:     "CloudControllerManagerWebhook=true,ControllerManagerReleaseLeaderElectionLockOnExit=true",
		AdditionalLabels: "node.openshift.io/platform-type=vsphere",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || platform != (Platform{Type: "VSphere"}) {
		t.Error(diff, err, platform)
	}
}

func TestGatesOfOtherPlatformsMeanNothing(t *testing.T) {
	for _, i := range []*configv1.Infrastructure{infrastructure(configv1.AWSPlatformType), infrastructure(configv1.VSpherePlatformType)} {
		gates := map[string]bool{"VSphereMixedNodeEnv": i.Status.PlatformStatus.Type == configv1.AWSPlatformType}
		if v, _, err := (Cluster{Infrastructure: i, Gates: gates}).Values(); err != nil || v.AdditionalLabels != "" || v.Proxy != nil {
			t.Error(v, err)
		}
	}
}

func TestAzureStackHubIsACloudOfAzure(t *testing.T) {
	i := infrastructure(configv1.AzurePlatformType)
	i.Status.PlatformStatus.Azure = &configv1.AzurePlatformStatus{CloudName: configv1.AzureStackCloud}
	if p, err := PlatformOf(i); err != nil || p != (Platform{"Azure", "AzureStackCloud"}) {
		t.Error(p, err)
	}
}
