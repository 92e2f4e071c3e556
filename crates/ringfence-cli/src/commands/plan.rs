//! `ringfence plan`

use std::process::ExitCode;

use ringfence_engine::plan;
use ringfence_local::Local;

use super::words::meant;
use crate::args::Plan;
use crate::error::CliError;

pub(crate) fn run(arguments: Plan) -> Result<ExitCode, CliError> {
    let meant = meant(&arguments.policy, None)?;
    let plan = plan(&Local::default(), &meant.resolved)?;
    if arguments.json {
        println!("{}", serde_json::json!({ "steps": plan.steps.iter().map(ToString::to_string).collect::<Vec<_>>(), "gaps": plan.gaps }));
        return Ok(ExitCode::SUCCESS);
    }
    for step in &plan.steps {
        println!("{step}");
    }
    for gap in &plan.gaps {
        println!("GAP      {}: {}", gap.what, gap.why);
    }
    Ok(ExitCode::SUCCESS)
}
