//! The way to the API server: reports to api-gateway, and what it has of the API server.

use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::api_reports_client::ApiReportsClient;
use bulkhead_api::v1::report_request::Report;
use ipc::limits::MAX_POD_MESSAGE_BYTES;
use ipc::{CallError, Channel, Network};
use topology::Process;

use super::awaited::{self, AwaitedReports};

/// Time for one report: the gateway's turns, and the API server's answer.
const REPORT_DEADLINE: Duration = Duration::from_secs(15);

/// The way to the API server.
#[derive(Clone)]
pub(crate) struct Gateway {
    client: ApiReportsClient<Channel>,
    awaited: AwaitedReports,
}

impl Gateway {
    pub(crate) fn new(network: &Network, awaited: AwaitedReports) -> Gateway {
        let client = ApiReportsClient::new(network.channel(Process::ApiGateway));
        Gateway {
            client: client.max_decoding_message_size(MAX_POD_MESSAGE_BYTES),
            awaited,
        }
    }

    /// What the API server holds.
    pub(crate) fn watch(&self) -> ipc::Subscription<v1::WatchApiReportsResponse> {
        let client = self.client.clone();
        ipc::subscribe("what the API server holds", move || {
            let mut client = client.clone();
            async move {
                client
                    .watch_api_reports(v1::WatchApiReportsRequest {})
                    .await
            }
        })
    }

    /// Makes one report.
    pub(crate) async fn report(&self, report: Report) -> Result<v1::ReportResponse, CallError> {
        let of_pod = awaited::of_pod(&report);
        if let Some((pod, what)) = &of_pod {
            self.awaited.begins(pod, what);
        }
        let request = v1::ReportRequest {
            report: Some(report),
        };
        let result = ipc::call(REPORT_DEADLINE, || {
            let (mut client, request) = (self.client.clone(), request.clone());
            async move { client.report(request).await }
        })
        .await;
        if let Some((pod, _)) = &of_pod {
            self.awaited.ends(pod, &result);
        }
        result
    }
}
