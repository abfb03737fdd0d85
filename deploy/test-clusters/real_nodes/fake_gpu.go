// fake-gpu DIRECTORY COUNT: a device plugin that pretends COUNT GPUs, registered with the kubelet whose device-plugin
// directory is DIRECTORY. Containers get CUDA_VISIBLE_DEVICES, as from the real one. SIGUSR1 makes GPU 0 ill.
package main

import (
	"context"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const endpoint, prefix = "fake-gpu.sock", "GPU-"

type plugin struct {
	count int
	ill   chan os.Signal
}

func (p *plugin) devices(firstHealth string) *api.ListAndWatchResponse {
	found := &api.ListAndWatchResponse{}
	for number := 0; number < p.count; number++ {
		found.Devices = append(found.Devices, &api.Device{ID: prefix + strconv.Itoa(number), Health: api.Healthy})
	}
	if p.count > 0 {
		found.Devices[0].Health = firstHealth
	}
	return found
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(p.devices(api.Healthy)); err != nil {
		return err
	}
	for range p.ill {
		if err := stream.Send(p.devices(api.Unhealthy)); err != nil {
			return err
		}
	}
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		var numbers []string
		for _, id := range container.DevicesIDs {
			numbers = append(numbers, strings.TrimPrefix(id, prefix))
		}
		sort.Strings(numbers)
		visible := map[string]string{"CUDA_VISIBLE_DEVICES": strings.Join(numbers, ",")}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{Envs: visible})
	}
	return answer, nil
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) PreStartContainer(context.Context, *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	return &api.PreStartContainerResponse{}, nil
}

func (p *plugin) GetPreferredAllocation(context.Context, *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	return &api.PreferredAllocationResponse{}, nil
}

func main() {
	directory := os.Args[1]
	count, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	socket := filepath.Join(directory, endpoint)
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	served := &plugin{count, make(chan os.Signal, 1)}
	signal.Notify(served.ill, syscall.SIGUSR1)
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, served)
	go server.Serve(listener)

	patience, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	kubelet := "unix://" + filepath.Join(directory, "kubelet.sock")
	connection, err := grpc.DialContext(patience, kubelet, grpc.WithInsecure(), grpc.WithBlock())
	if err != nil {
		log.Fatal(err)
	}
	request := &api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: "nvidia.com/gpu"}
	if _, err := api.NewRegistrationClient(connection).Register(patience, request); err != nil {
		log.Fatal(err)
	}
	select {}
}
