// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	computefake "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"
	networkfake "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9/fake"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// fakeCompute serves by Microsoft's generated fakes: they take paths and
// queries apart, and write the answers.
func (c *Cloud) fakeCompute(k *call) *failure {
	return c.viaFake(k, computefake.NewServerFactoryTransport(c.computeServers()))
}

func (c *Cloud) fakeNetwork(k *call) *failure {
	return c.viaFake(k, networkfake.NewServerFactoryTransport(c.networkServers()))
}

// viaFake hands the request to a fake, as the SDK's client would. The fakes panic
// when a context ends while they work (v9.0.0: send on closed channel).
func (c *Cloud) viaFake(k *call, fake interface {
	Do(*http.Request) (*http.Response, error)
}) *failure {
	r := k.r.Clone(context.WithValue(context.WithoutCancel(k.r.Context()), runtime.CtxAPINameKey{}, k.route.api))
	r.URL.Scheme, r.URL.Host, r.RequestURI = "https", k.r.Host, ""
	answer, err := fake.Do(r)
	var refused *azcore.ResponseError
	if errors.As(err, &refused) {
		return fail(refused.StatusCode, refused.ErrorCode, "%s %s", k.r.Method, k.r.URL.Path)
	}
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.violate("%s %s: %v", k.r.Method, k.r.URL, err)
		return fail(http.StatusBadRequest, "BadRequest", "%v", err)
	}
	defer answer.Body.Close()
	for name, values := range answer.Header {
		k.w.Header()[name] = values
	}
	k.w.WriteHeader(answer.StatusCode)
	io.Copy(k.w, answer.Body) // the caller may have gone
	return nil
}

// notThere is what a fake sends for what is not there.
const notThere = "ResourceNotFound"

func answerIf[T any](there bool, body T) (ok azfake.Responder[T], bad azfake.ErrorResponder) {
	if there {
		ok.SetResponse(http.StatusOK, body, nil)
	} else {
		bad.SetResponseError(http.StatusNotFound, notThere)
	}
	return ok, bad
}

func (c *Cloud) computeServers() *computefake.ServerFactory {
	return &computefake.ServerFactory{
		VirtualMachinesServer: computefake.VirtualMachinesServer{Get: c.fakeGetVM, RetrieveBootDiagnosticsData: c.fakeConsole},
		ImagesServer: computefake.ImagesServer{Get: func(_ context.Context, group, name string, _ *armcompute.ImagesClientGetOptions) (azfake.Responder[armcompute.ImagesClientGetResponse], azfake.ErrorResponder) {
			return answerIf(known(images, partID(group, compute+"images", name)), armcompute.ImagesClientGetResponse{})
		}},
		GalleryImagesServer: computefake.GalleryImagesServer{Get: func(_ context.Context, group, gallery, name string, _ *armcompute.GalleryImagesClientGetOptions) (azfake.Responder[armcompute.GalleryImagesClientGetResponse], azfake.ErrorResponder) {
			return answerIf(known(images, partID(group, compute+"galleries", gallery+"/images/"+name)), armcompute.GalleryImagesClientGetResponse{})
		}},
		GalleryImageVersionsServer: computefake.GalleryImageVersionsServer{Get: func(_ context.Context, group, gallery, name, version string, _ *armcompute.GalleryImageVersionsClientGetOptions) (azfake.Responder[armcompute.GalleryImageVersionsClientGetResponse], azfake.ErrorResponder) {
			return answerIf(known(images, partID(group, compute+"galleries", gallery+"/images/"+name+"/versions/"+version)), armcompute.GalleryImageVersionsClientGetResponse{})
		}},
		CommunityGalleryImageVersionsServer: computefake.CommunityGalleryImageVersionsServer{Get: func(_ context.Context, region, gallery, name, version string, _ *armcompute.CommunityGalleryImageVersionsClientGetOptions) (azfake.Responder[armcompute.CommunityGalleryImageVersionsClientGetResponse], azfake.ErrorResponder) {
			id := "/CommunityGalleries/" + gallery + "/Images/" + name + "/Versions/" + version
			return answerIf(region == Region && known(images, id), armcompute.CommunityGalleryImageVersionsClientGetResponse{})
		}},
		SharedGalleryImageVersionsServer: computefake.SharedGalleryImageVersionsServer{Get: func(_ context.Context, region, gallery, name, version string, _ *armcompute.SharedGalleryImageVersionsClientGetOptions) (azfake.Responder[armcompute.SharedGalleryImageVersionsClientGetResponse], azfake.ErrorResponder) {
			id := "/SharedGalleries/" + gallery + "/Images/" + name + "/Versions/" + version
			return answerIf(region == Region && known(images, id), armcompute.SharedGalleryImageVersionsClientGetResponse{})
		}},
	}
}

func (c *Cloud) fakeGetVM(_ context.Context, group, name string, o *armcompute.VirtualMachinesClientGetOptions) (ok azfake.Responder[armcompute.VirtualMachinesClientGetResponse], bad azfake.ErrorResponder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	vm := c.visible(name)
	if vm == nil || !inGroup(vm.id, strings.ToLower(group)) {
		bad.SetResponseError(http.StatusNotFound, notThere)
		return ok, bad
	}
	withState := o != nil && value(o.Expand) == armcompute.InstanceViewTypesInstanceView
	ok.SetResponse(http.StatusOK, armcompute.VirtualMachinesClientGetResponse{VirtualMachine: c.view(vm, withState)}, nil)
	return ok, bad
}

func (c *Cloud) networkServers() *networkfake.ServerFactory {
	return &networkfake.ServerFactory{
		InterfacesServer: networkfake.InterfacesServer{Get: c.fakeGetNIC},
		SubnetsServer: networkfake.SubnetsServer{Get: func(_ context.Context, group, vnet, name string, _ *armnetwork.SubnetsClientGetOptions) (azfake.Responder[armnetwork.SubnetsClientGetResponse], azfake.ErrorResponder) {
			id := partID(group, network+"virtualNetworks", vnet+"/subnets/"+name)
			return answerIf(strings.EqualFold(id, SubnetID), armnetwork.SubnetsClientGetResponse{Subnet: armnetwork.Subnet{ID: to.Ptr(id), Name: to.Ptr(name)}})
		}},
		SecurityGroupsServer: networkfake.SecurityGroupsServer{Get: func(_ context.Context, group, name string, _ *armnetwork.SecurityGroupsClientGetOptions) (azfake.Responder[armnetwork.SecurityGroupsClientGetResponse], azfake.ErrorResponder) {
			id := partID(group, network+"networkSecurityGroups", name)
			region := Region
			if strings.EqualFold(id, FarSecurityGroupID) {
				region = "westeurope"
			}
			return answerIf(known([]string{SecurityGroupID, FarSecurityGroupID}, id), armnetwork.SecurityGroupsClientGetResponse{
				SecurityGroup: armnetwork.SecurityGroup{ID: to.Ptr(id), Location: to.Ptr(region)},
			})
		}},
	}
}

func (c *Cloud) fakeGetNIC(_ context.Context, group, name string, o *armnetwork.InterfacesClientGetOptions) (azfake.Responder[armnetwork.InterfacesClientGetResponse], azfake.ErrorResponder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	nic := c.nics[strings.ToLower(partID(group, network+"networkInterfaces", name))]
	if nic == nil || !c.World.Visible(cloudsim.KindNIC, nic.id) {
		return answerIf(false, armnetwork.InterfacesClientGetResponse{})
	}
	expand := o != nil && strings.Contains(value(o.Expand), "publicIPAddress")
	return answerIf(true, armnetwork.InterfacesClientGetResponse{Interface: *c.nicView(nic, expand)})
}

// consoleText is what a guest writes when it starts.
const consoleText = "[    0.000000] Linux version 6.12.0 (pod VM)\r\n[    1.234567] podvm: agent is listening\r\n"

func (c *Cloud) fakeConsole(_ context.Context, _, name string, o *armcompute.VirtualMachinesClientRetrieveBootDiagnosticsDataOptions) (ok azfake.Responder[armcompute.VirtualMachinesClientRetrieveBootDiagnosticsDataResponse], bad azfake.ErrorResponder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	vm := c.visible(name)
	if vm == nil {
		bad.SetResponseError(http.StatusNotFound, notThere)
		return ok, bad
	}
	d := vm.model.Properties.DiagnosticsProfile
	if d == nil || d.BootDiagnostics == nil || !value(d.BootDiagnostics.Enabled) {
		bad.SetResponseError(http.StatusConflict, "BootDiagnosticsNotEnabled")
		return ok, bad
	}
	path := "/console/" + strings.ToLower(name)
	uri := c.Server.URL + path + "?" + url.Values{"sig": {c.identity.sign(path)}, "se": {"2027-01-01"}}.Encode()
	ok.SetResponse(http.StatusOK, armcompute.VirtualMachinesClientRetrieveBootDiagnosticsDataResponse{
		RetrieveBootDiagnosticsDataResult: armcompute.RetrieveBootDiagnosticsDataResult{SerialConsoleLogBlobURI: to.Ptr(uri)},
	}, nil)
	return ok, bad
}

// serveConsole is the storage of consoles. A token there is somebody's mistake:
// the signature in the URL is enough, and the token is not for the storage.
func (c *Cloud) serveConsole(w http.ResponseWriter, r *http.Request) bool {
	name, ok := strings.CutPrefix(r.URL.Path, "/console/")
	if !ok {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	vm := c.vms[name]
	switch {
	case r.Header.Get("Authorization") != "":
		c.violate("the token of the resource manager was sent to the storage")
		w.WriteHeader(http.StatusForbidden)
	case r.URL.Query().Get("sig") != c.identity.sign(r.URL.Path):
		w.Header().Set("x-ms-error-code", "AuthenticationFailed")
		w.WriteHeader(http.StatusForbidden)
	case vm == nil || vm.wrote == "":
		w.Header().Set("x-ms-error-code", "BlobNotFound")
		w.WriteHeader(http.StatusNotFound)
	default:
		io.WriteString(w, vm.wrote) // the caller may have gone
	}
	return true
}
