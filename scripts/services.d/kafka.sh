# Kafka: one KRaft node, from the jars that kafka.pom.xml names.

java_is_recent() {
    local major
    have java || return 1
    major=$(java -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p' | head -n 1)
    [[ ${major:-0} -ge 17 ]]
}

kafka_version() { sed -nE 's|.*<kafka.version>(.*)</kafka.version>.*|\1|p' "$root/scripts/services.d/kafka.pom.xml"; }
kafka_jars() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/pillarbox/kafka-$(kafka_version)"; }

missing_kafka() {
    java_is_recent || echo openjdk-17-jre-headless
    [[ -d $(kafka_jars) ]] || have mvn || echo maven
}

# Downloads the jars. The folder gets its final name only when it is complete.
fetch_kafka() {
    local jars
    jars=$(kafka_jars)
    [[ ! -d $jars ]] || return 0
    mkdir -p "$(dirname "$jars")"
    (
        flock 8
        [[ ! -d $jars ]] || exit 0
        say "fetching Kafka $(kafka_version)"
        rm -rf "$jars.partial"
        mvn -q -B -f "$root/scripts/services.d/kafka.pom.xml" dependency:copy-dependencies \
            -DincludeScope=runtime -DoutputDirectory="$jars.partial" >"$jars.txt" 2>&1 8>&- || {
            tail -n 30 "$jars.txt" >&2
            exit 1
        }
        rm -f "$jars.txt"
        mv "$jars.partial" "$jars"
    ) 8>"$jars.lock" || die "cannot download Kafka $(kafka_version): Maven failed (its output is above)"
}

prepare_kafka() {
    local home=$dir/kafka plain sasl ssl controller
    choose_ports kafka plain sasl ssl controller
    plain=$(port kafka plain) sasl=$(port kafka sasl) ssl=$(port kafka ssl) controller=$(port kafka controller)
    mkdir -p "$home/tmp"
    cat "$dir/tls/server.key" "$dir/tls/server.pem" >"$home/keystore.pem"
    make_private kafka "$home/keystore.pem"
    cat >"$home/server.properties" <<CONF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listeners=PLAINTEXT://127.0.0.1:$plain,SASL_PLAINTEXT://127.0.0.1:$sasl,SSL://127.0.0.1:$ssl,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$plain,SASL_PLAINTEXT://127.0.0.1:$sasl,SSL://localhost:$ssl
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_pillarbox="secret";
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location=$home/keystore.pem
ssl.client.auth=none
log.dirs=$home/data
auto.create.topics.enable=true
num.partitions=3
default.replication.factor=1
message.max.bytes=1048588
num.network.threads=2
num.io.threads=4
background.threads=2
# Few internal partitions: creating fifty delays the first consumer group and the first transaction.
offsets.topic.num.partitions=3
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=3
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.segment.bytes=16777216
log.retention.hours=24
log.retention.bytes=536870912
log.cleaner.dedupe.buffer.size=16777216
CONF
    cat >"$home/log4j2.properties" <<CONF
status=warn
appender.file.type=File
appender.file.name=file
appender.file.fileName=$home/server.log
appender.file.append=false
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
CONF
    kafka_java kafka.tools.StorageTool -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
    run_as kafka "${java[@]}" format --cluster-id cGlsbGFyYm94LXRlc3QtMQ --config "$home/server.properties" \
        --add-scram 'SCRAM-SHA-256=[name=pillarbox,password=secret]' >"$home/format.out" 2>&1 ||
        { tail -n 20 "$home/format.out" >&2; return 1; }
}

kafka_java() { # CLASS OPTION... -> java
    local class=$1 home=$dir/kafka
    shift
    # No files outside of the folder: no performance data, no unpacked native libraries.
    java=("$(command -v java)" "$@" -XX:-UsePerfData -Djava.io.tmpdir="$home/tmp" -Djava.awt.headless=true
        -Dlog4j2.configurationFile="$home/log4j2.properties" -cp "$(kafka_jars)/*" "$class")
}

spawn_kafka() {
    kafka_java kafka.Kafka -Xmx512m -Xms256m -XX:+ExitOnOutOfMemoryError
    rm -f "$dir/kafka/server.log"
    spawn kafka "${java[@]}" "$dir/kafka/server.properties"
}

# The broker is unfenced and answers a Metadata request (version 1, all topics) with at least one broker.
probe_kafka() {
    grep -qs 'Kafka Server started' "$dir/kafka/server.log" && perl -MSocket -e '
        alarm 5;
        socket(my $s, PF_INET, SOCK_STREAM, 0) or exit 1;
        connect($s, pack_sockaddr_in($ARGV[0], INADDR_LOOPBACK)) or exit 1;
        syswrite($s, pack("N/a*", pack("nnNnN", 3, 1, 7, 0xffff, 0xffffffff))) or exit 1;
        my $answer = "";
        while (length($answer) < 12) { sysread($s, $answer, 64, length($answer)) or exit 1 }
        my ($length, $correlation, $brokers) = unpack("NNN", $answer);
        exit($correlation == 7 && $brokers > 0 ? 0 : 1)' "$(port kafka plain)"
}

env_kafka() {
    variable KAFKA_BROKERS "127.0.0.1:$(port kafka plain)"
    variable KAFKA_SASL_BROKERS "127.0.0.1:$(port kafka sasl)"
    variable KAFKA_SSL_BROKERS "localhost:$(port kafka ssl)"
}

halt_kafka() { terminate kafka TERM 15; }
