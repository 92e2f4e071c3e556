use super::*;

fn ended(number: u64, size: usize) -> Arc<Execution> {
    let (id, name) = (format!("{number:06}"), |text| SkillName::try_from(text).unwrap());
    let skill = SkillId { user: name("alice"), agent: name("helper"), skill: name("tool") };
    let status = ExecutionStatus {
        id: id.clone(),
        user_id: skill.user.clone(),
        agent_id: skill.agent.clone(),
        skill_id: skill.skill.clone(),
        sandbox_id: None,
        command: "true".into(),
        state: ExecutionState::Ended,
        created_ms: now_ms(),
        started_ms: None,
        ended_ms: None,
        result: None,
        error: None,
        is_kept: true,
        key: None,
        request: None,
    };
    Arc::new(Execution {
        id,
        skill,
        is_kept: true,
        key: None,
        file: AbsPath::new("/nowhere").unwrap(),
        status: Mutex::new(status),
        progress: CommandWatch::over(),
        weight: AtomicUsize::new(0),
        size: AtomicUsize::new(size),
        fault: Mutex::default(),
    })
}

#[test]
fn stored_results_of_a_tenant_stay_within_the_disk_limit() {
    let executions = ExecutionRegistry::new(1);
    let gone: Vec<String> = (0..10)
        .flat_map(|number| executions.add(&ended(number, DISK / 4)))
        .map(|execution| execution.id.clone())
        .collect();
    assert_eq!(gone, ["000000", "000001", "000002", "000003", "000004", "000005"]);
    assert_eq!(executions.list().len(), 4);
}
